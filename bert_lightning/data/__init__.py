"""From a file to padded batches: readers → records → encoding → batching."""
