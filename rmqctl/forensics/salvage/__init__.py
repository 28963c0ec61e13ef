"""Find records of commit logs in any bytes: files, disk images, shuffled blocks."""
