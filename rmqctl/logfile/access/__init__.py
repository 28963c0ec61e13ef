"""Safe access to files: no links are followed, and root's rights are dropped."""
