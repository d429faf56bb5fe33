import type { View } from 'vega';
import { fitUrl } from './pictures';
import { fill, type IRecipe, type Row } from './recipe';
import type { TemplateName } from './templates';
import { themeConfig, type ITheme, headless } from './vega';
import { visible } from './format';

/** Words that a picture carries where the page's own are not beside it. */
export interface ICaption {
  readonly title: string;
  readonly caption: readonly string[];
}

export interface ILook {
  readonly theme: ITheme;
  /** Title and caption in the picture; absent where the page writes them. */
  readonly words?: ICaption;
}

/**
 * Draw a recipe as SVG text that is XML whatever its texts hold, without a page and without loading anything.
 */
export function drawSVG(recipe: IRecipe, look: ILook): Promise<string> {
  return withView(recipe, look, svgOf);
}

/**
 * Write a view as SVG text that is XML whatever its texts hold. Screen readers pass over what Vega calls a
 * symbol without a name. It is as short as can be without another look: notebooks carry it.
 */
export async function svgOf(view: View): Promise<string> {
  const text = visible(await view.toSVG());
  // Every text of Vega's has both.
  const [family, size] = ['font-family', 'font-size'].map(name => commonest(text, ` ${name}="[^"]*"`));
  return text.replace(/<\w+(?:\s+[\w:-]+="[^"]*")*\s*\/?>/g, tag => {
    const short = (tag.startsWith('<text ') ? tag.replace(family!, '').replace(size!, '') : tag)
      .replace(' opacity="1"', '')
      .replace(/^<svg /, `<svg${family}${size} `)
      .replace(/ (?:d|transform)="[^"]*"/g, places => places.replace(/(\.\d)\d+(?!\d*e)/g, '$1'));
    return short.includes(SYMBOL) && !/ aria-label="[^"]/.test(short)
      ? short.replace(SYMBOL, ' aria-hidden="true"')
      : short;
  });
}

/** What a text has most often of what a pattern finds; empty where it has none. */
function commonest(text: string, pattern: string): string {
  const counts = new Map<string, number>();
  for (const [found] of text.matchAll(new RegExp(pattern, 'g'))) {
    counts.set(found, (counts.get(found) ?? 0) + 1);
  }
  return [...counts].reduce((most, each) => (each[1] > most[1] ? each : most), ['', 0])[0];
}

const SYMBOL = ' role="graphics-symbol"';

/**
 * Return the Vega-Lite spec of a recipe, valid in version 5.8 and later and in 6; with the points that carry
 * tooltips.
 */
export function vegaLiteSpec(recipe: IRecipe, { theme, words }: ILook): Record<string, unknown> {
  return { ...fill(worded(recipe, words), { title: words === undefined }), config: themeConfig(theme) };
}

/** Run a recipe as a Vega view that no page holds, and let go of it afterwards. */
export async function withView<T>(
  recipe: IRecipe,
  { theme, words }: ILook,
  use: (view: View) => Promise<T>
): Promise<T> {
  const spec = fill(worded(recipe, words), { title: words === undefined, hover: true });
  const view = await headless(spec, themeConfig(theme));
  try {
    return await use(view);
  } finally {
    view.finalize();
  }
}

function worded(recipe: IRecipe, words: ICaption | undefined): IRecipe {
  return words === undefined
    ? recipe
    : { ...recipe, params: { ...recipe.params, title: words.title, caption: [...words.caption] } };
}

/** Pixels that axes, legend and gaps take around the plots of each template, for each column and for all. */
const BESIDE: Readonly<Record<TemplateName, { readonly all: number; readonly each?: number }>> = {
  heatmap: { all: 130, each: 44 },
  'trend-heatmap': { all: 150 },
  lines: { all: 230 },
  'line-panels': { all: 70 },
  points: { all: 260 },
  'moment-map': { all: 250 },
  'alarm-marks': { all: 90 },
  'token-map': { all: 150 },
  timeline: { all: 240 },
  pipeline: { all: 240 },
  tokens: { all: 60 }
};

/**
 * Return a recipe whose plots make a picture of about that width. The page measures what stands around them;
 * without a page there are no fonts to measure.
 */
export function sized(recipe: IRecipe, width: number): IRecipe {
  const { all, each = 0 } = BESIDE[recipe.template];
  const columns = recipe.columns ?? 1;
  const fit = { ...recipe, width: Math.max(40, Math.floor((width - all) / columns - each)) };
  const { pictures } = recipe.datasets;
  return pictures === undefined
    ? fit
    : {
        ...fit,
        datasets: { ...recipe.datasets, pictures: pictures.map(row => fitUrl(row, ...roomOf(fit, row))) }
      };
}

/** The pixels of a whole picture, of which a plot may show a part, or which may be a part of a plot. */
function roomOf({ params, width = 0, height = Infinity }: IRecipe, row: Row): [number, number] {
  const across = (Number(row['x2']) - Number(row['x'])) / (Number(params['x1']) - Number(params['x0']));
  const down = (Number(row['y2']) - Number(row['y'])) / (Number(params['y1']) - Number(params['y0']));
  return [width * (Math.abs(across) || 1), height * (Math.abs(down) || 1)];
}
