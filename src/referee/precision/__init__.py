"""Which precision for this step? Autocast audit, gradient ranges, scaler, wrong use, timing, and a verdict."""
