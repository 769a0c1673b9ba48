"""The verbs, one file each: the only place that joins measuring and analysing. `loaderprobe` itself exports them."""
