import type { IVectors } from '../../projection/features';
import { boundedText } from '../../../../protocol/texts';
import type { GenerationQuery, ITokenLocation } from '../../store/generation-rows';
import { GenerationRows, joinPositions, product } from '../../store/generation-rows';
import { PLACE_COLUMNS, readTokens, type IGeneration } from '../../store/generations';
import type { ITextPosition } from '../../../../store/run-link';
import type { IRunSource } from '../../../../store/source';
import type { ITensorRow } from '../../../../store/tensor-data';

/**
 * Most tokens that are projected; of more those farthest from the mean are, and every second, third …
 * other.
 */
const MOST_TOKENS = 20_000;
const FARTHEST = 2000;
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
  readonly locations: ITokenLocation[];
}

/** What is drawn of so many tokens: so many that are far from the mean, and one in so many of the others. */
interface IThinned {
  readonly all: number;
  readonly far: number;
  readonly every: number;
  /** What was far from the mean of what. */
  readonly by: string;
}

/** What of a run is projected. */
export type VectorQuery = Pick<GenerationQuery, 'flag' | 'part'> & {
  /** Place of positions among the axes. */
  readonly axis: number;
};

/** The tensors of a layer, by generation and sequence. */
interface IJoined {
  readonly joined: Map<string, { row: ITensorRow; missing: Uint8Array }>;
  readonly newest: ITensorRow;
  readonly axis: number;
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
    /** What is here of too many tokens; null where all are. */
    readonly thinned: IThinned | null = null
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
      const read = await readTokens(source, generation, undefined, signal, PLACE_COLUMNS);
      for (const { location, piece, position, sequence } of read) {
        const last = sequences.at(-1);
        if (last?.generation === generation && last.sequence === sequence) {
          last.locations.push(location);
        } else {
          sequences.push({ generation, sequence, locations: [location] });
        }
        const { step } = location;
        unread += step < 0 ? 1 : 0;
        if (step >= 0) {
          const prompt = Math.floor(sequence / samples);
          tokens.push({ generation, sequence, position, piece: boundedText(piece, MOST_TEXT), prompt, step });
        }
      }
    }
    return new TextVectors(rows, sequences, tokens, unread);
  }

  /** Return what is drawn of too many tokens, without losing an outlier of a layer. */
  async thin(
    query: VectorQuery,
    layer: number,
    standardise: boolean,
    signal: AbortSignal
  ): Promise<TextVectors> {
    const { tokens } = this;
    if (tokens.length <= MOST_TOKENS) {
      return this;
    }
    const joined = await this._join(query, layer, signal);
    const far = new Set(joined ? farthest(tokens, joined, standardise) : []);
    const every = Math.ceil(tokens.length / (MOST_TOKENS - FARTHEST));
    const retained = tokens.filter((_, at) => far.has(at) || at % every === 0);
    const thinned = { all: tokens.length, far: far.size, every, by: `${layer} ${standardise}` };
    return new TextVectors(this._rows, this._sequences, retained, this.unread, thinned);
  }

  /** Tells whether the same tokens were read. */
  get key(): string {
    const last = this.tokens.reduce((most, { step }) => Math.max(most, step), -1);
    return `${this._sequences.map(each => `${each.generation}:${each.sequence}`).join()} ${this.tokens.length} ${last} ${this.thinned?.by}`;
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
  async of(query: VectorQuery, layer: number, signal: AbortSignal): Promise<ILayerVectors | null> {
    const joined = await this._join(query, layer, signal);
    return joined && gathered(this.tokens, joined);
  }

  private async _join(
    { axis, ...query }: VectorQuery,
    layer: number,
    signal: AbortSignal
  ): Promise<IJoined | null> {
    const joined: IJoined['joined'] = new Map();
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
    return newest && { joined, newest, axis };
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

/** Puts the vector of a token into an array, or says why there is none. */
function vectorReader({ joined, newest, axis }: IJoined): {
  readonly columns: number;
  readonly read: (token: IVectorToken, into: Float32Array) => 'missing' | 'read' | 'unfitting';
} {
  const inner = product(newest.shape.slice(axis + 2));
  const outer = product(newest.shape.slice(1, axis + 1));
  return {
    columns: outer * inner,
    read: ({ generation, sequence, position }, into) => {
      const found = joined.get(`${generation}:${sequence}`);
      if (found === undefined || found.missing[position] !== 0) {
        return 'missing';
      }
      const { compressor, shape, values: from } = found.row;
      const count = shape[axis + 1] ?? 0;
      const isAlike =
        compressor === newest.compressor &&
        shape.every((size, place) => place === axis + 1 || size === newest.shape[place]);
      if (!isAlike) {
        return 'unfitting';
      }
      for (let slice = 0; slice < outer; slice += 1) {
        const start = (slice * count + position) * inner;
        into.set(from.subarray(start, start + inner), slice * inner);
      }
      return 'read';
    }
  };
}

function gathered(tokens: readonly IVectorToken[], joined: IJoined): ILayerVectors {
  const { columns, read } = vectorReader(joined);
  const values = new Float32Array(tokens.length * columns).fill(NaN);
  const none = { missing: 0, unfitting: 0, read: 0 };
  tokens.forEach((token, at) => {
    none[read(token, values.subarray(at * columns, (at + 1) * columns))] += 1;
  });
  const { missing, unfitting } = none;
  return { vectors: { rows: tokens.length, columns, values }, missing, unfitting, row: joined.newest };
}

/**
 * The tokens whose vectors lie farthest from the mean of all, in standard deviations of each feature if
 * asked.
 */
function farthest(tokens: readonly IVectorToken[], joined: IJoined, standardise: boolean): number[] {
  const { columns, read } = vectorReader(joined);
  const vector = new Float32Array(columns);
  const [mean, squares] = [new Float64Array(columns), new Float64Array(columns)];
  let count = 0;
  const each = (visit: (at: number) => void): void =>
    tokens.forEach((token, at) => read(token, vector) === 'read' && visit(at));
  each(() => {
    if (vector.every(Number.isFinite)) {
      count += 1;
      for (let column = 0; column < columns; column += 1) {
        const away = (vector[column] ?? 0) - (mean[column] ?? 0);
        mean[column] = (mean[column] ?? 0) + away / count;
        squares[column] = (squares[column] ?? 0) + away * ((vector[column] ?? 0) - (mean[column] ?? 0));
      }
    }
  });
  const distances = new Float64Array(tokens.length).fill(-1);
  each(at => {
    let sum = 0;
    for (let column = 0; column < columns; column += 1) {
      const away = ((vector[column] ?? 0) - (mean[column] ?? 0)) ** 2;
      const spread = standardise ? (squares[column] ?? 0) : 1;
      sum += spread === 0 ? 0 : away / spread;
    }
    // What is not finite is counted, too, and is looked for first.
    distances[at] = Number.isFinite(sum) ? sum : Infinity;
  });
  const least = distances.slice().sort()[Math.max(0, tokens.length - FARTHEST)] ?? 0;
  const far: number[] = [];
  distances.forEach(
    (distance, at) => far.length < FARTHEST && distance > 0 && distance >= least && far.push(at)
  );
  return far;
}
