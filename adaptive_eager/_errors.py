"""The package's own errors and warnings."""


class AdaptiveEagerError(RuntimeError):
    """Base of the errors that adaptive_eager raises itself."""


class AdaptiveEagerWarning(UserWarning):
    """Something was left at its default, or the device was left out, for the reason that the text gives."""
