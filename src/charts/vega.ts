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

/** Let every image mark draw the field `image` (a canvas) where a row has one: Vega-Lite knows only `url`. */
export function drawCanvases(spec: Spec): Spec {
  const visit = (marks: unknown): void => {
    for (const mark of Array.isArray(marks) ? (marks as Record<string, unknown>[]) : []) {
      visit(mark['marks']);
      const encode = mark['encode'] as Record<string, Record<string, unknown>> | undefined;
      const update = encode?.['update'];
      if (mark['type'] === 'image' && update) {
        update['image'] = { field: 'image' };
        update['url'] = { signal: 'datum.image ? null : datum.url' };
      }
    }
  };
  visit(spec.marks);
  return spec;
}

/** Compile, parse and run a spec without a page. The caller finalises the view. */
export async function headless(spec: object, config: object): Promise<View> {
  const { vega, vegaLite, interpreter } = await loadVega();
  const compiled = vegaLite.compile(spec as Parameters<typeof vegaLite.compile>[0], { config });
  const runtime = vega.parse(drawCanvases(compiled.spec as Spec), undefined, { ast: true });
  const view = new vega.View(runtime, { renderer: 'none', expr: interpreter, logLevel: vega.Error });
  await view.runAsync();
  return view;
}
