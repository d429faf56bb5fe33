import type { Spec, View } from 'vega';
import COLORS from '#protocol/charts/colors.json';

export interface ITheme {
  readonly dark: boolean;
  readonly font: string;
  readonly text: string;
  readonly muted: string;
  readonly line: string;
  readonly grid: string;
  /** Page colour behind the chart, or `transparent`. */
  readonly background: string;
}

const FONT = "system-ui, -apple-system, 'Segoe UI', 'Helvetica Neue', Arial, sans-serif";

/** What charts look like where no theme is at hand, and in every exported picture. */
export const LIGHT_THEME: ITheme = {
  dark: false,
  font: FONT,
  ...COLORS.ink.light,
  background: COLORS.ink.light.ground
};

/** What charts look like on a dark page whose variables are not at hand. */
export const DARK_THEME: ITheme = {
  dark: true,
  font: FONT,
  ...COLORS.ink.dark,
  background: COLORS.ink.dark.ground
};

/**
 * Return the relative luminance, 0 to 1, of a CSS colour, or null when it is not `#rgb`, `#rrggbb` or
 * `rgb(…)`.
 */
function luminance(color: string): number | null {
  const short = /^#([0-9a-f])([0-9a-f])([0-9a-f])$/i.exec(color);
  const long = /^#([0-9a-f]{2})([0-9a-f]{2})([0-9a-f]{2})/i.exec(color);
  const rgb = /^rgba?\(\s*(\d+)[\s,]+(\d+)[\s,]+(\d+)/.exec(color);
  const parts = short
    ? short.slice(1).map(digit => parseInt(digit + digit, 16))
    : long
      ? long.slice(1, 4).map(pair => parseInt(pair, 16))
      : rgb?.slice(1, 4).map(Number);
  if (!parts) {
    return null;
  }
  const [red = 0, green = 0, blue = 0] = parts;
  return (0.2126 * red + 0.7152 * green + 0.0722 * blue) / 255;
}

/**
 * Read the theme of the page around a node from JupyterLab's CSS variables, with fallbacks where they are
 * absent.
 */
export function readTheme(node: Element): ITheme {
  const style = getComputedStyle(node);
  const variable = (name: string): string => style.getPropertyValue(name).trim();
  const page = variable('--jp-layout-color1') || getComputedStyle(node.ownerDocument.body).backgroundColor;
  const mark = node.ownerDocument.body.dataset['jpThemeLight'];
  const dark = mark === undefined ? (luminance(page) ?? 1) < 0.5 && !/, 0\)$/.test(page) : mark === 'false';
  const base = dark ? DARK_THEME : LIGHT_THEME;
  return {
    dark,
    font: variable('--jp-ui-font-family') || base.font,
    text: variable('--jp-ui-font-color1') || base.text,
    muted: variable('--jp-ui-font-color2') || base.muted,
    line: variable('--jp-border-color1') || base.line,
    grid: variable('--jp-border-color3') || variable('--jp-border-color2') || base.grid,
    background: 'transparent'
  };
}

/** Call back when JupyterLab, or the page around, changes its theme. Returns what ends the watch. */
export function watchTheme(node: Element, callback: () => void): () => void {
  const observer = new MutationObserver(callback);
  observer.observe(node.ownerDocument.body, {
    attributes: true,
    attributeFilter: ['data-jp-theme-name', 'data-jp-theme-light']
  });
  const holder = node.closest('.jp-MegalensAlone');
  if (holder !== null) {
    observer.observe(holder, { attributes: true, attributeFilter: ['data-theme'] });
  }
  return () => observer.disconnect();
}

export function themeConfig(theme: ITheme): Record<string, unknown> {
  const tone = theme.dark ? 'dark' : 'light';
  const words = { labelFont: theme.font, titleFont: theme.font, labelFontSize: 11, titleFontSize: 11 };
  return {
    background: theme.background,
    font: theme.font,
    padding: 4,
    view: { stroke: null, fill: null },
    axis: {
      ...words,
      labelColor: theme.muted,
      titleColor: theme.muted,
      titleFontWeight: 'normal',
      titlePadding: 6,
      domainColor: theme.line,
      tickColor: theme.line,
      gridColor: theme.grid,
      tickSize: 4,
      labelLimit: 90
    },
    header: { ...words, labelColor: theme.text, titleColor: theme.muted, labelFontWeight: 'normal' },
    legend: {
      ...words,
      labelColor: theme.muted,
      titleColor: theme.muted,
      titleFontWeight: 'normal',
      symbolStrokeWidth: 2
    },
    title: {
      font: theme.font,
      subtitleFont: theme.font,
      color: theme.text,
      subtitleColor: theme.muted,
      fontSize: 13,
      fontWeight: 600,
      subtitleFontSize: 11,
      subtitlePadding: 4
    },
    range: {
      ramp: COLORS.layers[tone],
      heatmap: COLORS.layers[tone],
      category: COLORS.categorical[tone]
    }
  };
}

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
 * Load Vega and draw a small chart that nobody sees: the first one takes four times as long as any later,
 * because the browser compiles the code only then. Call it while there is something else to wait for.
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
