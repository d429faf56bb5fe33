import type { IRunSource, SourceChange } from '../../store/source';
import type { HeatmapQuestion, IHeatmapRead } from './heatmap-data';

/** A text that a run wrote, as it is offered for choice. */
export interface IOfferedText {
  readonly generation: number;
  /** Whether the model still writes it. */
  readonly isUnderWay: boolean;
  prompt(): string;
}

export interface ITextFound {
  readonly text: IOfferedText | undefined;
  /** Null where nothing of it is here. */
  readonly read: IHeatmapRead | null;
}

/** Reads what a heatmap draws of a text: its positions, put together from all passes of the model. */
export interface ITextRows {
  /** Texts of the run by number, as they were read last. */
  readonly offered: readonly IOfferedText[];
  note(change: SourceChange): void;
  offer(): Promise<void>;
  /**
   * @param wished Number of the text; 0 is the newest.
   * @param axes Axis names of one sample from hello, such as ['position', 'feature'].
   */
  read(
    question: HeatmapQuestion,
    requested: number,
    axes: readonly string[],
    signal: AbortSignal
  ): Promise<ITextFound>;
}

export type OpenTextRows = (source: IRunSource) => ITextRows;

let load: (() => Promise<OpenTextRows>) | null = null;

export function addTextRows(loader: () => Promise<OpenTextRows>): void {
  load = loader;
}

/** Load what reads texts ahead of the first heatmap. */
export const preloadTextRows = (): Promise<unknown> => load?.() ?? Promise.resolve();

/** The texts of a run, opened when they are first asked for. */
export class TextSource {
  constructor(private readonly _source: IRunSource) {}

  get offered(): readonly IOfferedText[] {
    return this._rows?.offered ?? [];
  }

  /** Take note of news of the run: what was not opened yet has read nothing. */
  note(change: SourceChange): void {
    this._rows?.note(change);
  }

  /** The texts, once it is known which there are; null where nobody here reads texts. */
  async offer(): Promise<ITextRows | null> {
    const open = await load?.();
    this._rows ??= open?.(this._source) ?? null;
    await this._rows?.offer();
    return this._rows;
  }

  private _rows: ITextRows | null = null;
}
