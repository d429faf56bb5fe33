import type { Job } from './engine/jobs';
import type { OpenPanelPart } from './panel/shell/panel-part';
import type { LookForReport } from './report/report-part';
import { addEventSource, type IEventSource } from './store/stream-events';
import { registerOwnViews, type OwnViews } from './views/other-views';
import { addTextRows, type OpenTextRows } from './views/heatmap/text-source';
import { addSentences } from './views/shared/said';
import { addTiles, type LoadTiles } from './views/overview/tiles';

/**
 * All of an instrument that the core can reach. Everything is loaded on first use, so that naming a
 * slice costs a start of JupyterLab only these few lines.
 */
export interface IInstrumentSlice {
  /** The name of its folder. */
  readonly name: string;
  readonly views: OwnViews;
  /** What it marks over the steps of a run. */
  readonly events?: readonly IEventSource[];
  /** What the kernel's engine can be asked. */
  readonly jobs?: Readonly<Record<string, () => Promise<Job>>>;
  /** What it adds to the panel. */
  readonly panel?: () => Promise<OpenPanelPart>;
  /** What it adds to a report whose views nobody chose. */
  readonly report?: () => Promise<LookForReport>;
  /** What it adds to the page that shows a run at a glance. */
  readonly tiles?: LoadTiles;
  /** What it makes whole of sentences outside the page, with places: `views/shared/said`. */
  readonly sentences?: () => Promise<readonly string[]>;
  /** How a heatmap draws the positions of a text instead of one step. */
  readonly textRows?: () => Promise<OpenTextRows>;
}

/** Make known what every page and engine needs of slices: their views, and what these read. */
export function registerSlices(slices: readonly IInstrumentSlice[]): void {
  for (const { views, events, sentences, textRows, tiles } of slices) {
    registerOwnViews(views);
    events?.forEach(addEventSource);
    if (sentences) {
      addSentences(sentences);
    }
    if (tiles) {
      addTiles(tiles);
    }
    if (textRows) {
      addTextRows(textRows);
    }
  }
}
