"""Principal components and UMAP of traced vectors, as the page's worker computes them."""
