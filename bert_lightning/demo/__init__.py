"""What works without downloads: a made-up corpus and a mini BERT."""
