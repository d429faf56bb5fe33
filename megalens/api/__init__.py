"""What a training script or a notebook cell calls: it composes the rooms. Its names are those of
``import megalens``.
"""
