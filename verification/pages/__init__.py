"""The report pages of this project, one for each document that is audited."""
