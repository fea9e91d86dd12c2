"""Tables, data sets, labels and partitions: rows on their way to a site."""
