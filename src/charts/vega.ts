import type { Spec, View } from 'vega';

type Embed = (typeof import('vega-embed'))['default'];

/** The libraries that draw, loaded on first use: a static import would cost every JupyterLab start. */
export interface IVega extends IPagelessVega {
  readonly embed: Embed;
}

/** Those that need no page. */
export interface IPagelessVega {
  readonly vega: typeof import('vega');
  readonly vegaLite: typeof import('vega-lite');
  readonly interpreter: (typeof import('vega-interpreter'))['expressionInterpreter'];
}

let loading: Promise<IVega> | null = null;
let warming: Promise<void> | null = null;

/** Load Vega once. */
export function loadVega(): Promise<IVega> {
  loading ??= Promise.all([import('vega-embed'), loadPageless()]).then(([{ default: embed }, vega]) => ({
    embed,
    ...vega
  }));
  loading.catch(() => {
    loading = null; // A chunk that did not load may load the next time.
  });
  return loading;
}

async function loadPageless(): Promise<IPagelessVega> {
  const [vega, vegaLite, { expressionInterpreter }] = await Promise.all([
    import('vega'),
    import('vega-lite'),
    import('vega-interpreter')
  ]);
  return { vega, vegaLite, interpreter: expressionInterpreter };
}

/**
 * Load Vega and draw a small chart that nobody sees: the first one takes four times as long as any later, because the browser
 * compiles the code only then. Call it while there is something else to wait for.
 */
export function warmVega(): Promise<void> {
  warming ??= drawUnseen();
  return warming;
}

async function drawUnseen(): Promise<void> {
  const axis = (field: string): object => ({ field, type: 'quantitative' });
  const view = await headless(
    {
      params: [{ name: 'x0', value: 0 }],
      data: { values: [{ x: 0, y: 0 }] },
      layer: [
        { mark: 'line', encoding: { x: axis('x'), y: axis('y') } },
        { mark: 'image', encoding: { x: axis('x'), y: axis('y'), url: { field: 'url' } } },
        {
          mark: { type: 'text', dx: 4 },
          encoding: { y: axis('y'), text: { field: 'x' }, color: { value: 'gray' } }
        }
      ]
    },
    {}
  );
  view.finalize();
}

/** Give every image mark of a spec other channels. */
function patchImages(spec: Spec, channels: Record<string, unknown>): Spec {
  const visit = (marks: unknown): void => {
    for (const mark of Array.isArray(marks) ? (marks as Record<string, unknown>[]) : []) {
      visit(mark['marks']);
      const encode = mark['encode'] as Record<string, Record<string, unknown>> | undefined;
      const update = encode?.['update'];
      if (mark['type'] === 'image' && encode && update) {
        encode['update'] = { ...update, ...channels };
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
  const { vega, vegaLite, interpreter } = await loadPageless();
  const compiled = vegaLite.compile(spec as Parameters<typeof vegaLite.compile>[0], { config });
  const runtime = vega.parse(writeImages(compiled.spec as Spec), undefined, { ast: true });
  const view = new vega.View(runtime, { renderer: 'none', expr: interpreter, logLevel: vega.Error });
  await view.runAsync();
  return view;
}
