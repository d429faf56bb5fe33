/** arquero, loaded on first use: a static import would cost every JupyterLab start 238 KB. */
export function loadArquero(): Promise<typeof import('./arquero')> {
  loading ??= import('./arquero');
  return loading;
}

let loading: Promise<typeof import('./arquero')> | undefined;
