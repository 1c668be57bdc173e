"""Job configs: models, messages for mistakes, YAML."""
