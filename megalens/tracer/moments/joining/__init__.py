"""What several processes measured of one tensor becomes one row."""
