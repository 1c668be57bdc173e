"""Running a job: budget, Beam runners, progress, logs, publishing."""
