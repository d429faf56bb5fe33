import { own } from '../protocol/records';
import alarmMarks from '#protocol/charts/alarm-marks.vl.json';
import heatmap from '#protocol/charts/heatmap.vl.json';
import linePanels from '#protocol/charts/line-panels.vl.json';
import lines from '#protocol/charts/lines.vl.json';
import momentMap from '#protocol/charts/moment-map.vl.json';
import pipeline from '#protocol/charts/pipeline.vl.json';
import points from '#protocol/charts/points.vl.json';
import timeline from '#protocol/charts/timeline.vl.json';
import tokenMap from '#protocol/charts/token-map.vl.json';
import tokens from '#protocol/charts/tokens.vl.json';
import trendHeatmap from '#protocol/charts/trend-heatmap.vl.json';

/** Vega-Lite templates by name. Not to be changed: copy before filling. */
export const TEMPLATES = {
  'alarm-marks': alarmMarks,
  heatmap,
  'line-panels': linePanels,
  lines,
  'moment-map': momentMap,
  pipeline,
  points,
  timeline,
  'token-map': tokenMap,
  tokens,
  'trend-heatmap': trendHeatmap
} as const;

export type TemplateName = keyof typeof TEMPLATES;

/**
 * Vega keeps what it groups by in plain objects, where this one text is no key: the first picture is drawn,
 * and every later change throws. A word joiner, which has neither a shape nor a width, makes it another text.
 */
const [NAME, KEPT] = ['__proto__', '__proto__\u2060'];

/**
 * Values as Vega can take them: of rows, of params, of lists of these. What needs no change is returned as it
 * is.
 */
export function toVega<T>(value: T): T {
  return replaced(value, NAME, KEPT) as T;
}

export function fromVega<T>(value: T): T {
  return replaced(value, KEPT, NAME) as T;
}

// Objects of a class, such as canvases, are not looked into. What stays the same is not copied.
function replaced(value: unknown, from: string, to: string): unknown {
  if (typeof value !== 'object' || value === null) {
    return value === from ? to : value;
  }
  const differs = (each: unknown): boolean => replaced(each, from, to) !== each;
  if (Array.isArray(value)) {
    return value.some(differs) ? value.map(each => replaced(each, from, to)) : value;
  }
  if (Object.getPrototypeOf(value) !== Object.prototype || !Object.values(value).some(differs)) {
    return value;
  }
  return Object.fromEntries(Object.entries(value).map(([name, each]) => [name, replaced(each, from, to)]));
}

/** Names that every plain object answers to: Vega looks titles up in some, and takes what it finds there. */
const INHERITED: ReadonlySet<string> = new Set(Object.getOwnPropertyNames(Object.prototype));

/**
 * A text of a template as Vega can take it. Titles stand in expressions, whose texts end with a line: there a
 * space does.
 */
function safeText(text: string): string {
  const line = text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029]+/g, ' ');
  return INHERITED.has(line) ? `${line}\u2060` : line;
}

/** A chart could not be drawn; the message says what was expected, what came and what to try. */
export class ChartError extends Error {
  override readonly name = 'ChartError';
}

export type Row = Record<string, unknown>;

/** All that a template needs to become a chart: see protocol/charts/README.md. */
export interface IRecipe {
  readonly template: TemplateName;
  readonly texts: Readonly<Record<string, string>>;
  readonly params: Readonly<Record<string, unknown>>;
  readonly datasets: Readonly<Record<string, readonly Row[]>>;
  /**
   * Counts the paintings of canvases that the rows hold: another number draws again where the rows are the
   * same.
   */
  readonly painted?: number;
  /** Columns of the grid of `heatmap`. */
  readonly columns?: number;
  /** Size in pixels of one cell, and so of the strip next to it. */
  readonly width?: number;
  readonly height?: number;
  /** Whether the page names the lines: a mounted chart has no legend then. */
  readonly unkeyed?: true;
}

/**
 * What to leave out: the title and the names of lines where the page writes them, the hover points where the
 * host has pointer code.
 */
export interface IOmissions {
  readonly title?: boolean;
  readonly hover?: boolean;
  readonly key?: boolean;
}

type Node = Record<string, unknown>;

const isNode = (value: unknown): value is Node =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/**
 * Fill a template. The template itself is not changed.
 * @throws {ChartError} When a text of the template has no match.
 */
export function fill(recipe: IRecipe, omit: IOmissions = {}): Node {
  const walk = (value: unknown): unknown => {
    if (Array.isArray(value)) {
      const items = omit.hover ? value.filter(item => !isNode(item) || item['name'] !== 'hover') : value;
      return items.map(walk);
    }
    if (isNode(value)) {
      const copy = Object.fromEntries(Object.entries(value).map(([key, item]) => [key, walk(item)]));
      if (omit.key && isNode(copy['legend']) && copy['legend']['symbolType'] !== undefined) {
        copy['legend'] = null;
      }
      const sized = copy['name'] === 'cell' || copy['name'] === 'ramp';
      if (sized && recipe.height !== undefined) {
        copy['height'] = recipe.height;
      }
      if (copy['name'] === 'cell' && recipe.width !== undefined) {
        copy['width'] = recipe.width;
      }
      if (copy['name'] === 'grid' && recipe.columns !== undefined) {
        copy['columns'] = recipe.columns;
      }
      // A key that is a plot of its own stays, for rows still come for it, and shows nothing.
      return omit.key && copy['name'] === 'key' && copy['layer'] !== undefined
        ? { ...copy, width: 0, title: null, transform: [{ filter: 'false' }] }
        : copy;
    }
    if (typeof value === 'string' && value.startsWith('$')) {
      const text = own(recipe.texts, value.slice(1));
      if (text === undefined) {
        throw new ChartError(
          `Chart ${recipe.template} expected the text "${value.slice(1)}" and got none. Fill it in.`
        );
      }
      return safeText(text);
    }
    return value;
  };
  const spec = walk(TEMPLATES[recipe.template]) as Node;
  if (spec['width'] !== undefined) {
    spec['width'] = recipe.width ?? spec['width'];
    spec['height'] = recipe.height ?? spec['height'];
  }
  const params = spec['params'] as { name: string; value: unknown }[];
  spec['params'] = params.map(({ name, value }) => ({
    name,
    value: toVega(own(recipe.params, name) ?? value)
  }));
  spec['datasets'] = { ...(spec['datasets'] as Node), ...toVega(recipe.datasets) };
  if (omit.title) {
    delete spec['title'];
    spec['params'] = (spec['params'] as { name: string }[]).filter(
      p => p.name !== 'title' && p.name !== 'caption'
    );
  }
  return spec;
}
