import { isAttentionRow, joinAttention } from '../../store/attention-rows';
import { generationOf, isUnderWay, type IGeneration } from '../../store/generations';
import { joinPositions, type IGenerationRead } from '../../store/generation-rows';
import type { IRunSource, SourceChange } from '../../../../store/source';
import type { ITensorRow } from '../../../../store/tensor-data';
import { TextTensors } from '../../store/text-tensors';
import { tokenWords } from '../../../../views/kits/text/token-words';
import { tokenText } from '../../../../views/shared/describe';
import { promptWords } from './generation-view';
import type { HeatmapQuestion, ITextShown, ISlice } from '../../../../views/heatmap/heatmap-data';
import type {
  IOfferedText,
  ITextFound,
  ITextRows,
  OpenTextRows
} from '../../../../views/heatmap/text-source';

/** Cells of attention along an axis at most: a screen has no more pixels for them. */
const MOST_CELLS = 1024;

/** A row put together, and which of its positions, or of its cells, are not there. */
interface IJoined {
  readonly row: ITensorRow;
  readonly missing: Uint8Array;
  readonly block: readonly [number, number] | null;
}

/** Open the texts of a run for a heatmap. */
export const openTextRows: OpenTextRows = source => new TextRows(source);

/** Reads what a heatmap draws of a generation: its positions, put together from all its passes. */
class TextRows implements ITextRows {
  constructor(source: IRunSource) {
    this._texts = new TextTensors(source);
  }

  get offered(): readonly IOfferedText[] {
    return this._offered.map(offeredOf);
  }

  note(change: SourceChange): void {
    this._texts.concerns(change);
  }

  async offer(): Promise<void> {
    this._offered = await this._texts.generations.read();
  }

  async read(
    question: HeatmapQuestion,
    requested: number,
    axes: readonly string[],
    signal: AbortSignal
  ): Promise<ITextFound> {
    const found = generationOf(this._offered, requested === 0 ? null : requested);
    if (found === undefined) {
      return { text: undefined, read: null };
    }
    const { flag, layers, part, rank } = question;
    const { generation, sequences } = found;
    const sequence = Math.max(0, Math.min(question.sample, sequences - 1));
    const { locations, tokens } = await this._texts.locations.read(generation, sequence);
    const query = { flag, layers, ...(part ? { part } : {}), ...(rank === null ? {} : { rank }) };
    const read = await this._texts.rows.read(generation, query, locations, signal);
    const joined = this._join(read, { ...question, sample: sequence }, axes);
    const keys = hasKeys(read, axes);
    const isTiled = axes.includes('query') && !keys;
    const [first, ...others] = joined.map(each => each.row);
    if (first === undefined) {
      return { text: offeredOf(found), read: null };
    }
    const text: ITextShown = {
      generation,
      sequence,
      sequences,
      heads: headsOf(read, axes),
      missing: read.missing,
      unread: read.unread,
      block: joined.find(({ block }) => block !== null)?.block ?? null,
      maskOf: (row, slice) =>
        maskOf(joined.find(each => each.row === row)?.missing, slice, axes.includes('query'))
    };
    return {
      text: offeredOf(found),
      read: {
        rows: [first, ...others],
        step: Math.max(...joined.map(({ row }) => row.step)),
        sample: 0,
        head: keys ? 0 : question.head,
        // A tile of keys is no token.
        tokens: isTiled ? [] : tokens.map(token => tokenText(tokenWords(token))),
        result: { ...read.kept, sampledEvery: 1 },
        measured: [],
        text
      }
    };
  }

  /** The rows of each layer; the same objects while nothing came, so that they are not drawn again. */
  private _join(
    read: IGenerationRead,
    { sample, head }: HeatmapQuestion,
    axes: readonly string[]
  ): IJoined[] {
    const isAttention = hasKeys(read, axes);
    const key = [read.version, read.count, sample, isAttention ? head : '', read.layers.join()].join(' ');
    if (key !== this._key) {
      this._key = key;
      this._joined = read.layers.flatMap(layer => {
        const joined = isAttention
          ? attentionOf(read, layer, sample, Math.min(head, headsOf(read, axes) - 1))
          : joinPositions(read, layer, sample, axes.indexOf(axes.includes('query') ? 'query' : 'position'));
        return joined ? [{ block: null, ...joined }] : [];
      });
    }
    return this._joined;
  }

  private readonly _texts: TextTensors;
  private _offered: readonly IGeneration[] = [];
  private _key = '';
  private _joined: IJoined[] = [];
}

function offeredOf(generation: IGeneration): IOfferedText {
  return {
    generation: generation.generation,
    isUnderWay: isUnderWay(generation),
    prompt: () => promptWords(generation, 0)
  };
}

function attentionOf(read: IGenerationRead, layer: number, sequence: number, head: number): IJoined | null {
  const map = joinAttention(read, layer, { sequence, heads: [head], most: MOST_CELLS });
  const block = map && ([map.queries.side, map.keys.side] as const);
  return map && { row: map.row, missing: map.missing, block: block && Math.max(...block) > 1 ? block : null };
}

/** Heads of a tensor that has them, 1 of others. */
function headsOf(read: IGenerationRead, axes: readonly string[]): number {
  const row = read.passes.map(({ rows }) => [...rows.values()][0]).find(each => each !== undefined);
  return axes[0] === 'head' ? (row?.shape[1] ?? 1) : 1;
}

/** Whether rows hold queries × keys; if a compressor mixed keys, queries are joined like positions. */
function hasKeys(read: IGenerationRead, axes: readonly string[]): boolean {
  return axes.includes('query') && read.passes.some(({ rows }) => [...rows.values()].some(isAttentionRow));
}

/**
 * Which cells of a slice are not there.
 * @param down Whether positions run down, not across.
 */
function maskOf(
  missing: Uint8Array | undefined,
  { rows, columns }: ISlice,
  down: boolean
): Uint8Array | undefined {
  if (missing === undefined || !missing.includes(1) || missing.length === rows * columns) {
    return missing?.includes(1) ? missing : undefined;
  }
  return Uint8Array.from(
    { length: rows * columns },
    (_, cell) => missing[down ? Math.floor(cell / columns) : cell % columns] ?? 0
  );
}
