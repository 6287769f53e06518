"""Fine-tune BERT on Chinese text classes with Lightning; precision and strategy are YAML values."""

__version__ = "0.1.0"
