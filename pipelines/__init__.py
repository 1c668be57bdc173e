"""What a person runs: the command line, configs, and the jobs that join the stages."""
