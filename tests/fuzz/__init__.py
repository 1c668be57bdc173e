"""Every door of the software, tried with what nobody would write on purpose."""
