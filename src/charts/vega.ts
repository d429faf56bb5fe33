import type { Spec, View } from 'vega';

type Embed = (typeof import('vega-embed'))['default'];

/** The libraries that draw, loaded on first use: a static import would cost every JupyterLab start. */
export interface IVega {
  readonly embed: Embed;
  readonly vega: typeof import('vega');
  readonly vegaLite: typeof import('vega-lite');
  readonly interpreter: (typeof import('vega-interpreter'))['expressionInterpreter'];
}

let loading: Promise<IVega> | null = null;

/** Load Vega once. */
export function loadVega(): Promise<IVega> {
  loading ??= Promise.all([
    import('vega-embed'),
    import('vega'),
    import('vega-lite'),
    import('vega-interpreter')
  ]).then(([{ default: embed }, vega, vegaLite, { expressionInterpreter }]) => ({
    embed,
    vega,
    vegaLite,
    interpreter: expressionInterpreter
  }));
  loading.catch(() => {
    loading = null; // A chunk that did not load may load the next time.
  });
  return loading;
}

/** Give every image mark of a spec other channels. */
function patchImages(spec: Spec, channels: Record<string, unknown>): Spec {
  const visit = (marks: unknown): void => {
    for (const mark of Array.isArray(marks) ? (marks as Record<string, unknown>[]) : []) {
      visit(mark['marks']);
      const encode = mark['encode'] as Record<string, Record<string, unknown>> | undefined;
      const update = encode?.['update'];
      if (mark['type'] === 'image' && update) {
        Object.assign(update, channels);
      }
    }
  };
  visit(spec.marks);
  return spec;
}

/** Let every image mark draw the field `image` (a canvas) where a row has one: Vega-Lite knows only `url`. */
export function drawCanvases(spec: Spec): Spec {
  return patchImages(spec, {
    image: { field: 'image' },
    url: { signal: 'datum.image ? null : datum.url' }
  });
}

/** The same for an SVG, which names its images: a URL is passed on as it is instead of being loaded first. */
export function writeImages(spec: Spec): Spec {
  return patchImages(spec, {
    image: { signal: 'datum.image ? datum.image : { src: datum.url }' },
    url: { value: null }
  });
}

/** Compile, parse and run a spec without a page. The caller finalises the view. */
export async function headless(spec: object, config: object): Promise<View> {
  const { vega, vegaLite, interpreter } = await loadVega();
  const compiled = vegaLite.compile(spec as Parameters<typeof vegaLite.compile>[0], { config });
  const runtime = vega.parse(writeImages(compiled.spec as Spec), undefined, { ast: true });
  const view = new vega.View(runtime, { renderer: 'none', expr: interpreter, logLevel: vega.Error });
  await view.runAsync();
  return view;
}
