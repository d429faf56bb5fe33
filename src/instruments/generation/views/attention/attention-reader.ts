import { PHASES, TOKENS, type ITensorRow } from '../../../../store/tensor-data';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import { isAttentionRow, isCoarser, peaksWithin, locationsInRow } from '../../store/attention-rows';
import { generationOf, isUnderWay, type IGeneration } from '../../store/generations';
import type { GenerationQuery, IGenerationRead } from '../../store/generation-rows';
import type { IRunSource, SourceChange } from '../../../../store/source';
import { TextTensors } from '../../store/text-tensors';
import { firstOfEach, nearestStep, tokenRow, tokensOf } from '../../../../views/heatmap/heatmap-data';
import { chosenLayers } from '../../../../views/shared/layers';
import type { IAttentionText } from './attention-text';

/** Trace points that carry attention probabilities, and the texts of a training's positions. */
export const ATTENTION = 'RawAttentionScore_mat_mul';

/** Prompt positions from which on tokens are read after the first picture, and how long that takes, ms. */
const LONG = 2048;
const PAINT_MS = 500;
/** Bytes of attention read before and after the first picture; one answer of the server has up to 32 MiB. */
const [FIRST_BYTES, MOST_BYTES] = [1.8e6, 24 << 20];

export type AttentionQuestion = Pick<Required<AttentionOptions>, 'generation' | 'layers' | 'sequence'> & {
  /** Step of the training; null where a generation is wanted, if there is one. */
  readonly step: number | null;
  /** The same, or the step that is pinned; null is the newest. */
  readonly near: number | null;
};

export interface IAttentionFound {
  /** Generations of the run by number. */
  readonly offered: readonly IGeneration[];
  /** The one that was asked for, or else the newest with attention; undefined where there is none. */
  readonly generation: IGeneration | undefined;
  /** Layers with attention of any phase, ascending. */
  readonly layers: readonly number[];
  /** Steps of the training with attention, ascending. */
  readonly steps: readonly number[];
  /** Null where there is nothing of it. */
  readonly text: IAttentionText | null;
  /** The compressor of rows that cannot be joined because it mixes keys; null where there are none. */
  readonly mixed: string | null;
}

/** Finds the attention of a generated text, joined from its passes, or of a sample of a training step. */
export class AttentionReader {
  constructor(private readonly _source: IRunSource) {
    this._texts = new TextTensors(_source);
  }

  /** Whether news of the run change what is found; they are taken note of. */
  concerns(change: SourceChange): boolean {
    return this._texts.concerns(change);
  }

  async read(question: AttentionQuestion, signal: AbortSignal): Promise<IAttentionFound> {
    const { _source: source } = this;
    this._mixed = null;
    const [{ layers: known }, offered] = await Promise.all([
      source.shapeOf(ATTENTION),
      this._texts.generations.read()
    ]);
    const layers = chosenLayers(question.layers, known);
    const isOfStep = question.step !== null || offered.length === 0;
    const steps = isOfStep ? await this._steps() : [];
    const found = isOfStep
      ? { generation: undefined, text: await this._ofStep(question, steps, layers, signal) }
      : await this._ofText(question, offered, layers, signal);
    return { ...found, offered, layers: known, steps, mixed: this._mixed };
  }

  private async _ofText(
    { generation: requested, sequence }: AttentionQuestion,
    offered: readonly IGeneration[],
    layers: readonly number[],
    signal: AbortSignal
  ): Promise<Pick<IAttentionFound, 'generation' | 'text'>> {
    const newest = generationOf(offered, requested);
    const others = requested === null ? offered.filter(asksForAttention) : [];
    for (const generation of [newest, others[others.length - 1]]) {
      const text = generation && (await this._ofGeneration(generation, sequence, layers, signal));
      // The newest may only be waiting for its first rows.
      if (text || (generation && asksForAttention(generation) && isUnderWay(generation))) {
        return { generation, text: text ?? null };
      }
    }
    return { generation: newest, text: null };
  }

  private async _ofGeneration(
    generation: IGeneration,
    requested: number,
    layers: readonly number[],
    signal: AbortSignal
  ): Promise<IAttentionText | null> {
    const { generation: number, sequences, firstStep, lastStep } = generation;
    const sequence = Math.max(0, Math.min(requested, sequences - 1));
    const level = `${number} ${layers.join()}`;
    const query = this._queryOf(generation, layers, this._fine === level ? MOST_BYTES : FIRST_BYTES);
    const facts = { generation: number, sequence, sequences };
    const key = `${number} ${sequence}`;
    const isLate = isLong(generation) && this._begun !== key;
    let text: IAttentionText | null;
    if (isLate) {
      this._begun = key;
      const steps = [firstStep, lastStep] as const;
      const read = await this._texts.rows.readSteps(number, query, steps, locationsInRow, signal);
      text = this._textOf(read, { ...facts, tokens: [] });
    } else {
      const { locations, tokens } = await this._texts.locations.read(number, sequence);
      text = this._textOf(await this._texts.rows.read(number, query, locations, signal), {
        ...facts,
        tokens
      });
    }
    // Once: what cannot be read finer stays coarse, as its caption says.
    const isCoarse = text !== null && this._tried !== level && rowsOf(text.read).some(isCoarser);
    const rest = async (): Promise<void> => {
      await new Promise<void>(drawn => setTimeout(drawn, PAINT_MS));
      const { locations } = await this._texts.locations.read(number, sequence);
      if (isCoarse) {
        this._tried = level;
        const finer = this._queryOf(generation, layers, MOST_BYTES);
        const read = await this._texts.rows.read(number, finer, locations).catch(() => null);
        this._fine = read ? level : this._fine;
      }
    };
    return text && (isLate || isCoarse) ? { ...text, isCoarse, rest } : text;
  }

  /** A question for the attention of a text, as fine as fits into some bytes. */
  private _queryOf(
    { padded, request, sequences }: IGeneration,
    layers: readonly number[],
    bytes: number
  ): GenerationQuery {
    const heads = this._source.hello?.model?.heads ?? 0;
    const maps = heads * layers.length * Math.max(1, sequences);
    const peaks = maps > 0 ? { peaks: peaksWithin(bytes, maps, padded, request?.tokens ?? 0) } : {};
    return { flag: ATTENTION, layers, ...peaks };
  }

  private async _ofStep(
    { near, sequence: requested }: AttentionQuestion,
    steps: readonly number[],
    layers: readonly number[],
    signal: AbortSignal
  ): Promise<IAttentionText | null> {
    const step = nearestStep(steps, near);
    if (step === null) {
      return null;
    }
    const query = { rank: 'lowest', pass: 'forward', steps: [step, step] } as const;
    const { rows, evictedRows } = await this._source.tensors({ flag: ATTENTION, ...query, layers }, signal);
    const phase = PHASES.find(each => rows.some(row => row.phase === each));
    const drawn = firstOfEach(rows.filter(row => row.phase === phase));
    const [first] = drawn;
    const sequence = Math.max(0, Math.min(requested, (first?.shape[0] ?? 1) - 1));
    const tokens = first ? await this._tokens(first, sequence, signal) : [];
    const facts = { generation: null, sequence, sequences: first?.shape[0] ?? 1, tokens };
    return this._textOf({ ...readOf(drawn), kept: { evictedRows } }, facts);
  }

  /** Texts of the positions of a training's sample; empty where they are not traced. */
  private async _tokens(
    { step, rank, phase }: ITensorRow,
    sequence: number,
    signal: AbortSignal
  ): Promise<string[]> {
    const { hello } = this._source;
    if (!hello?.flags.some(({ name }) => name === TOKENS)) {
      return [];
    }
    const { rows } = await this._source.tensors({ flag: TOKENS, phase, steps: [step, step] }, signal);
    return tokensOf(tokenRow(rows, rank, hello), sequence);
  }

  /** Steps that are no generation's, of the first phase that has some. */
  private async _steps(): Promise<readonly number[]> {
    for (const phase of PHASES) {
      const steps = await this._source.steps(ATTENTION, phase, { pass: 'forward' });
      if (steps.length > 0) {
        return steps;
      }
    }
    return [];
  }

  private _textOf(
    read: IGenerationRead,
    facts: Pick<IAttentionText, 'generation' | 'sequence' | 'sequences' | 'tokens'>
  ): IAttentionText | null {
    const rows = rowsOf(read);
    const drawn = rows.filter(isAttentionRow);
    this._mixed ??= drawn.length === 0 ? (rows[0]?.compressor ?? null) : null;
    // Passes may be more than a call takes arguments.
    const most = (of: (row: ITensorRow) => number): number =>
      drawn.reduce((found, row) => Math.max(found, of(row)), 0);
    const [step, heads] = [most(row => row.step), most(row => row.shape[1] ?? 0)];
    return drawn.length === 0 ? null : { ...facts, read, step, heads };
  }

  private _mixed: string | null = null;
  /** The text and layers that were to be read finer, and those that were. */
  private _tried = '';
  private _fine = '';
  /** The long text of which something was drawn already. */
  private _begun = '';
  private readonly _texts: TextTensors;
}

const rowsOf = ({ passes }: IGenerationRead): ITensorRow[] => passes.flatMap(pass => [...pass.rows.values()]);

/**
 * Whether a text is drawn before its tokens have come: they are many megabytes, and attention itself says
 * which positions it is of. Not where prompts are padded, which only tokens tell.
 */
const isLong = ({ padded, firstStep, request }: IGeneration): boolean =>
  padded >= LONG && firstStep >= 0 && request?.prompts.length === 1;

const asksForAttention = ({ request }: IGeneration): boolean => request?.attention === true;

/** A forward pass that read a whole text. */
function readOf(rows: readonly ITensorRow[]): Omit<IGenerationRead, 'kept'> {
  const count = Math.max(0, ...rows.map(row => locationsInRow(row).length));
  const byLayer = new Map(rows.map(row => [row.layer, row]));
  return {
    layers: rows.map(row => row.layer),
    passes: [{ positions: [0, count - 1], shift: 0, rows: byLayer }],
    count,
    unread: 0,
    missing: 0,
    version: 0
  };
}
