import { zlibSync } from 'fflate';
import type { ColorScale } from './color-scale';
import { aggregated, type IPixels, paint, type IMatrix } from './pixels';
import type { View } from 'vega';
import { fill, type IRecipe, type Row, type TemplateName } from './recipe';
import { themeConfig, type ITheme, headless } from './vega';
import { visible } from './format';

/** Under what a picture says what it is of. Not a name: no spec and no JSON has it. */
const SOURCE = Symbol('what a picture is of');

/** What an image mark draws: a canvas where the page has one, else a PNG as a data URL. */
export interface IPicture {
  readonly image: HTMLCanvasElement | null;
  readonly url: string | null;
  /** Absent from what was not painted from a matrix. */
  readonly [SOURCE]?: IPainted;
}

/**
 * Turn pixels into something to draw. A canvas is drawn at once; a URL would first have to be decoded, and
 * flicker.
 *
 * @param before - A picture that is not needed any more: its canvas is painted over where the size is the
 * same.
 */
export function toPicture(pixels: IPixels, before?: IPicture): IPicture {
  if (pixels.width > 0 && pixels.height > 0) {
    const old = before?.image;
    const fits = old?.width === pixels.width && old.height === pixels.height;
    const canvas = fits ? old : newCanvas();
    if (canvas && put(canvas, pixels)) {
      return fits && before ? before : { image: canvas, url: null };
    }
  }
  return { image: null, url: toDataUrl(pixels) };
}

/** Put pixels on a canvas, which takes their size; false where the page cannot draw. */
function put(canvas: HTMLCanvasElement, { data, width, height }: IPixels): boolean {
  const context = canvas.getContext('2d');
  if (!context) {
    return false;
  }
  if (canvas.width !== width || canvas.height !== height) {
    [canvas.width, canvas.height] = [width, height];
  }
  context.putImageData(new ImageData(data, width, height), 0, 0);
  return true;
}

/** Make a canvas; null where there is no page. */
function newCanvas(): HTMLCanvasElement | null {
  return typeof document === 'undefined' ? null : document.createElement('canvas');
}

/** Write pixels as a PNG data URL without a canvas. */
export function toDataUrl(pixels: IPixels): string {
  let binary = '';
  for (const byte of encodePng(pixels)) {
    binary += String.fromCharCode(byte);
  }
  return `data:image/png;base64,${btoa(binary)}`;
}

const CRC = new Uint32Array(256).map((_, index) => {
  let value = index;
  for (let bit = 0; bit < 8; bit++) {
    value = value & 1 ? 0xedb88320 ^ (value >>> 1) : value >>> 1;
  }
  return value;
});

function crc32(bytes: Uint8Array): number {
  let value = 0xffffffff;
  for (const byte of bytes) {
    value = (CRC[(value ^ byte) & 255] ?? 0) ^ (value >>> 8);
  }
  return (value ^ 0xffffffff) >>> 0;
}

function chunk(type: string, body: Uint8Array): Uint8Array {
  const out = new Uint8Array(12 + body.length);
  const view = new DataView(out.buffer);
  view.setUint32(0, body.length);
  out.set(
    [...type].map(letter => letter.charCodeAt(0)),
    4
  );
  out.set(body, 8);
  view.setUint32(8 + body.length, crc32(out.subarray(4, 8 + body.length)));
  return out;
}

/** Write pixels as a PNG (RGBA, 8 bits), for hosts without a canvas. */
export function encodePng(pixels: IPixels): Uint8Array {
  const { width, height, data } = pixels;
  const lines = new Uint8Array(height * (width * 4 + 1));
  for (let row = 0; row < height; row++) {
    lines.set(data.subarray(row * width * 4, (row + 1) * width * 4), row * (width * 4 + 1) + 1);
  }
  const header = new Uint8Array(13);
  const view = new DataView(header.buffer);
  view.setUint32(0, width);
  view.setUint32(4, height);
  header.set([8, 6, 0, 0, 0], 8);
  const parts = [
    new Uint8Array([0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]),
    chunk('IHDR', header),
    chunk('IDAT', zlibSync(lines)),
    chunk('IEND', new Uint8Array(0))
  ];
  const out = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}

/**
 * A matrix that was painted, and for how many pixels, across and down. One for each picture that is painted
 * over: a chart keeps the rows that say the same, and draws what these are of now.
 */
interface IPainted {
  matrix: IMatrix;
  scale: ColorScale;
  room: readonly [number, number];
  pixels?: IPixels | undefined;
}

/** All cells of a matrix, until somebody knows for how many pixels it is. */
const ALL: readonly [number, number] = [Infinity, Infinity];

const painted = ({ matrix, scale, room, pixels }: IPainted): IPixels =>
  paint(aggregated(matrix, ...room), scale, pixels);

/** Whether a matrix has as many cells in one room as in another. */
function isSame({ columns, rows }: IMatrix, one: IPainted['room'], other: IPainted['room']): boolean {
  return (
    Math.min(columns, one[0]) === Math.min(columns, other[0]) &&
    Math.min(rows, one[1]) === Math.min(rows, other[1])
  );
}

/**
 * Have a row's picture painted for the pixels that it takes: where these are fewer than its cells, what draws
 * it would leave out cells as they come, and with them a spike.
 *
 * @param canvas - What is drawn, and is painted over.
 * @returns Whether it was painted over.
 */
export function fitCanvas(row: object, canvas: unknown, width: number, height: number): boolean {
  const source = (row as IPicture)[SOURCE];
  const room = [Math.max(1, Math.floor(width)), Math.max(1, Math.floor(height))] as const;
  if (
    !source ||
    !(width > 0 && height > 0) ||
    !isCanvas(canvas) ||
    isSame(source.matrix, source.room, room)
  ) {
    return false;
  }
  source.room = room;
  source.pixels = painted(source);
  return put(canvas, source.pixels);
}

/** A row with its picture for so many pixels, where it is no canvas; it says no more of what it is. */
export function fitUrl<T extends object>(row: T, width: number, height: number): T {
  const { [SOURCE]: source, ...rest } = row as IPicture;
  const room = [width, height] as const;
  return source === undefined || rest.image !== null || isSame(source.matrix, source.room, room)
    ? row
    : ({ ...rest, url: toDataUrl(painted({ ...source, room, pixels: undefined })) } as unknown as T);
}

/** A row with a copy of its canvas, which the view does not paint over. */
export function withCopy<T extends object>(row: T): T {
  const { image, [SOURCE]: source } = row as IPicture;
  if (!isCanvas(image)) {
    return row;
  }
  const copy = document.createElement('canvas');
  [copy.width, copy.height] = [image.width, image.height];
  copy.getContext('2d')?.drawImage(image, 0, 0);
  return { ...row, image: copy, ...(source && { [SOURCE]: { ...source, pixels: undefined } }) };
}

const isCanvas = (value: unknown): value is HTMLCanvasElement =>
  typeof HTMLCanvasElement !== 'undefined' && value instanceof HTMLCanvasElement;

interface IEntry {
  readonly matrix: IMatrix;
  readonly colors: string;
  readonly source: IPainted;
  readonly picture: IPicture;
}

/**
 * The pictures of one view by key, one for each and no more: while its size stays, a picture is painted over
 * in place. A canvas for each step would be ten a second and plot, each with memory that only a full
 * collection gives back.
 */
export class Pictures {
  /** Return the picture of a matrix; painted again only when matrix or scale are other ones than before. */
  draw(key: unknown, matrix: IMatrix, scale: ColorScale): IPicture {
    // A value between tells apart scales of the same ends, the middle colour light and dark pages.
    const colors = `${scale.domain.join()} ${scale.transform} ${scale.valueAt(0.7)} ${scale.colorAt(0.5)}`;
    const before = this._byKey.get(key);
    if (before?.matrix === matrix && before.colors === colors) {
      return before.picture;
    }
    const source: IPainted = before?.source ?? { matrix, scale, room: ALL };
    [source.matrix, source.scale] = [matrix, scale];
    source.pixels = painted(source);
    const picture = { ...toPicture(source.pixels, before?.picture), [SOURCE]: source };
    this._byKey.set(key, { matrix, colors, source, picture });
    this.painted += 1;
    return picture;
  }

  /** Let go of every picture but these. */
  keep(keys: readonly unknown[]): void {
    for (const key of this._byKey.keys()) {
      if (!keys.includes(key)) {
        this._byKey.delete(key);
      }
    }
  }

  private readonly _byKey = new Map<unknown, IEntry>();
  painted = 0;
}

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
  const beside = all + (recipe.template === 'token-map' ? beyondNumbers(recipe) : 0);
  const fit = { ...recipe, width: Math.max(40, Math.floor((width - beside) / columns - each)) };
  const { pictures } = recipe.datasets;
  return pictures === undefined
    ? fit
    : {
        ...fit,
        datasets: { ...recipe.datasets, pictures: pictures.map(row => fitUrl(row, ...roomOf(fit, row))) }
      };
}

/** Pixels that names of rows take where others are numbers. */
function beyondNumbers({ params: { rowText } }: IRecipe): number {
  const letters = Array.isArray(rowText) ? Math.max(0, ...rowText.map(text => String(text).length)) : 0;
  return letters > 6 ? 6 * letters : 0;
}

/** The pixels of a whole picture, of which a plot may show a part, or which may be a part of a plot. */
function roomOf({ params, width = 0, height = Infinity }: IRecipe, row: Row): [number, number] {
  const across = (Number(row['x2']) - Number(row['x'])) / (Number(params['x1']) - Number(params['x0']));
  const down = (Number(row['y2']) - Number(row['y'])) / (Number(params['y1']) - Number(params['y0']));
  return [width * (Math.abs(across) || 1), height * (Math.abs(down) || 1)];
}
