"""The experiments of this project: paired runs that measure what a document puts a figure on."""
