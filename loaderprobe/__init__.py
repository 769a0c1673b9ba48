"""Does compute or input bound this training, which part of the input, and what would change it?"""

__version__ = "0.1.0"
