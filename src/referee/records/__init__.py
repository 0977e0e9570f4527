"""What was found, as plain frozen records: they are the file format, and everything else only reads or makes them."""
