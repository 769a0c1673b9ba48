"""The generator of data sets that storage and decoders take for ImageNet."""
