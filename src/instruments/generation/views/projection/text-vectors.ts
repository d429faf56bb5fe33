import type { IVectors } from '../../projection/features';
import { readableStreams } from '../../../../protocol/streams';
import { boundedText } from '../../../../protocol/texts';
import type { GenerationQuery, ITokenLocation } from '../../store/generation-rows';
import { GenerationRows, joinPositions, product, RowCells } from '../../store/generation-rows';
import { MOST_POSITIONS } from '../../store/generated-tokens';
import { PLACE_COLUMNS, type IGeneration } from '../../store/generations';
import type { ITextPosition } from '../../../../store/run-link';
import type { IRunSource } from '../../../../store/source';
import type { ITensorRow } from '../../../../store/tensor-data';

/** Most tokens that are projected; of more every second, third … is. */
const MOST_TOKENS = 20_000;
const MOST_TEXT = 200;

/** A token that the model read, and so has vectors of. */
export interface IVectorToken extends ITextPosition {
  readonly piece: string;
  /** Prompt that it belongs to, counted from 0 in its generation: samples share one. */
  readonly prompt: number;
  readonly step: number;
}

/** The vectors of a layer. */
export interface ILayerVectors {
  /** A row for each token, NaN where there is none. */
  readonly vectors: IVectors;
  /** Tokens of which there is no row. */
  readonly missing: number;
  /** Tokens whose vectors are of other features than the newest ones, and do not fit beside them. */
  readonly unfitting: number;
  /** The newest of the rows: how they were traced. */
  readonly row: ITensorRow;
}

interface ISequence {
  readonly generation: number;
  readonly sequence: number;
  readonly locations: readonly ITokenLocation[];
}

/** The tokens of some generations, and what was traced of them. */
export class TextVectors {
  private constructor(
    private readonly _rows: GenerationReaders,
    private readonly _sequences: readonly ISequence[],
    /** By generation, sequence and position. */
    readonly tokens: readonly IVectorToken[],
    /** Tokens that were never read, such as the last of each sequence. */
    readonly unread: number,
    /** 1, or of how many tokens one is here. */
    readonly every: number
  ) {}

  static async read(
    source: IRunSource,
    rows: GenerationReaders,
    generations: readonly IGeneration[],
    signal: AbortSignal
  ): Promise<TextVectors> {
    const sequences: ISequence[] = [];
    const tokens: IVectorToken[] = [];
    let unread = 0;
    for (const { generation, request } of generations) {
      const samples = Math.max(1, request?.samples ?? 1);
      for (const [sequence, found] of await readSequences(source, generation, signal)) {
        const locations = found.map(({ place }) => place);
        sequences.push({ generation, sequence, locations });
        const prompt = Math.floor(sequence / samples);
        for (const { place, piece } of found) {
          const { position, step } = place;
          unread += step < 0 ? 1 : 0;
          if (step >= 0) {
            tokens.push({ generation, sequence, position, piece, prompt, step });
          }
        }
      }
    }
    const every = Math.max(1, Math.ceil(tokens.length / MOST_TOKENS));
    const retained = every === 1 ? tokens : tokens.filter((_, at) => at % every === 0);
    return new TextVectors(rows, sequences, retained, unread, every);
  }

  /** Tells whether the same tokens were read. */
  get key(): string {
    const last = this.tokens.reduce((most, { step }) => Math.max(most, step), -1);
    return `${this._sequences.map(each => `${each.generation}:${each.sequence}`).join()} ${this.tokens.length} ${last}`;
  }

  /** First and last step of the tensors; null where nothing was read. */
  get steps(): readonly [number, number] | null {
    const steps = this.tokens.map(({ step }) => step);
    return steps.length === 0
      ? null
      : [steps.reduce((a, b) => Math.min(a, b)), steps.reduce((a, b) => Math.max(a, b))];
  }

  /**
   * Read the vectors of one layer.
   * @returns Null where there is no row of it.
   */
  async of(
    query: Pick<GenerationQuery, 'flag' | 'part'>,
    layer: number,
    axis: number,
    signal: AbortSignal
  ): Promise<ILayerVectors | null> {
    const joined = new Map<string, { row: ITensorRow; missing: Uint8Array }>();
    for (const { generation, sequence, locations } of this._sequences) {
      const reader = this._rows.of(generation);
      const read = await reader.read(generation, { ...query, layers: [layer] }, locations, signal);
      const found = joinPositions(read, layer, sequence, axis);
      if (found) {
        joined.set(`${generation}:${sequence}`, found);
      }
    }
    const newest = [...joined.values()].reduce<ITensorRow | null>(
      (best, { row }) => (best === null || row.step >= best.step ? row : best),
      null
    );
    return newest && gathered(this.tokens, joined, newest, axis);
  }
}

/** Readers of tensors, one for each generation, which remember what they read. */
export class GenerationReaders {
  constructor(private readonly _source: IRunSource) {}

  of(generation: number): GenerationRows {
    const reader = this._readers.get(generation) ?? new GenerationRows(this._source);
    this._readers.set(generation, reader);
    return reader;
  }

  came(firstStep: number, lastStep: number): void {
    this._readers.forEach(reader => reader.came(firstStep, lastStep));
  }

  private readonly _readers = new Map<number, GenerationRows>();
}

function gathered(
  tokens: readonly IVectorToken[],
  joined: ReadonlyMap<string, { row: ITensorRow; missing: Uint8Array }>,
  newest: ITensorRow,
  axis: number
): ILayerVectors {
  const inner = product(newest.shape.slice(axis + 2));
  const outer = product(newest.shape.slice(1, axis + 1));
  const columns = outer * inner;
  const values = new Float32Array(tokens.length * columns).fill(NaN);
  let [missing, unfitting] = [0, 0];
  tokens.forEach(({ generation, sequence, position }, at) => {
    const found = joined.get(`${generation}:${sequence}`);
    if (found === undefined || found.missing[position] !== 0) {
      missing += 1;
      return;
    }
    const { compressor, shape, values: from } = found.row;
    const count = shape[axis + 1] ?? 0;
    const isAlike =
      compressor === newest.compressor &&
      shape.every((size, place) => place === axis + 1 || size === newest.shape[place]);
    if (!isAlike) {
      unfitting += 1;
      return;
    }
    for (let slice = 0; slice < outer; slice += 1) {
      const start = (slice * count + position) * inner;
      values.set(from.subarray(start, start + inner), at * columns + slice * inner);
    }
  });
  return { vectors: { rows: tokens.length, columns, values }, missing, unfitting, row: newest };
}

/** The tokens of each sequence of a generation, by sequence and position; of duplicates the newer one. */
async function readSequences(
  source: IRunSource,
  generation: number,
  signal: AbortSignal
): Promise<[number, { place: ITokenLocation; piece: string }[]][]> {
  if (!readableStreams(source.hello?.streams).has('tokens')) {
    return [];
  }
  const rows = await source.table('tokens', { where: { generation }, columns: PLACE_COLUMNS }, signal);
  const cells = new RowCells(rows);
  const newest = new Map<number, Map<number, number>>();
  for (let at = 0; at < rows.length; at += 1) {
    const [sequence, position] = [cells.count('sequence', at), cells.count('position', at)];
    const known = newest.get(sequence) ?? new Map<number, number>();
    const before = known.get(position);
    const isNewer = before === undefined || cells.number('step', at) >= cells.number('step', before);
    if (sequence >= 0 && position >= 0 && position < MOST_POSITIONS && isNewer) {
      newest.set(sequence, known.set(position, at));
    }
  }
  const inOrder = <V>(map: ReadonlyMap<number, V>): [number, V][] => [...map].sort(([a], [b]) => a - b);
  return inOrder(newest).map(([sequence, known]) => [
    sequence,
    inOrder(known).map(([position, at]) => ({
      piece: boundedText(cells.text('piece', at), MOST_TEXT),
      place: {
        position,
        step: cells.count('tensor_step', at),
        pass: Math.max(0, cells.count('tensor_pass', at)),
        offset: Math.max(0, cells.count('tensor_offset', at))
      }
    }))
  ]);
}
