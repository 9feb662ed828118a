"""What a verification project is: its settings, catalogue, documents, and what its content package registers."""
