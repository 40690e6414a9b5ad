"""edge0verify: is that rounding, or a fault, and did the variant run at all?"""

__version__ = "0.1.0"
