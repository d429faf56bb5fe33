import type { TokensOptions } from '../../../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../../../store/source';
import { OtherRuns } from '../../../../views/shared/lines/other-runs';
import type { IViewRuns } from '../../../../views/view';
import {
  controlOf,
  GenerationReader,
  generationOf,
  readToken,
  readTokens,
  type IGeneration,
  type IToken,
  isUnderWay
} from '../../store/generations';

export type TokensChoice = Readonly<Required<TokensOptions>>;

export interface IWrittenText {
  readonly generation: IGeneration;
  readonly sequence: number;
  /** By position; empty where none is here. */
  readonly tokens: readonly IToken[];
  /** Reads the token at a position with its candidates, which the others are without. */
  readonly tokenAt: (position: number) => Promise<IToken | undefined>;
  /** Name of its run, where it is another one. */
  readonly run: string | null;
}

/** What is to be shown beside a text, and is not there. */
export interface IMissingText {
  /** Number of the generation; null is the newest of the other run. */
  readonly generation: number | null;
  readonly run: string | null;
}

export interface ITextFacts {
  readonly generations: readonly IGeneration[];
  readonly text: IWrittenText | null;
  /** What it is compared with; null where nothing is. */
  readonly other: IWrittenText | null;
  /** Set where the other text that was asked for is not there. */
  readonly missing: IMissingText | null;
  /** First position at which the two differ; null where they do not, as far as they are written. */
  readonly difference: number | null;
  /** Other runs that can be chosen. */
  readonly runs: readonly { readonly id: string; readonly name: string }[];
}

const STREAMS = ['generations', 'tokens'];
const MOST_RUNS = 20;

/** Reads the texts once for all parts of the view, and again when there is more of them. */
export class TextReader {
  constructor(
    private readonly _source: IRunSource,
    private readonly _runs: IViewRuns | null,
    changed: () => void
  ) {
    this._others = new OtherRuns(_runs, STREAMS, () => {
      this._renew();
      changed();
    });
  }

  get last(): ITextFacts | null {
    return this._last;
  }

  /** Whether news of the run changes a text. */
  concerns(change: SourceChange): boolean {
    const concerned = change.kind === 'rows' && STREAMS.includes(change.stream);
    if (concerned || change.kind === 'hello') {
      this._renew();
    }
    return concerned;
  }

  /** Read what the options ask for. Parts that ask at once share an answer. */
  facts(options: TokensChoice): Promise<ITextFacts> {
    const { generation, other, other_run: run, sequence } = options;
    const key = JSON.stringify([generation, other, run, sequence]);
    if (this._reading?.key !== key) {
      const facts = this._read(options);
      const reading = (this._reading = { key, facts });
      facts.then(
        found => {
          if (this._reading === reading) {
            this._last = found;
          }
        },
        () => {
          if (this._reading === reading) {
            this._reading = null;
          }
        }
      );
    }
    return this._reading.facts;
  }

  dispose(): void {
    this._others.dispose();
  }

  private _renew(): void {
    this._generations.renew();
    this._reading = null;
  }

  private async _read({ generation, other, other_run: run, sequence }: TokensChoice): Promise<ITextFacts> {
    const source = this._source;
    const generations = await this._generations.read(source);
    const shown = generationOf(generations, generation);
    const text = shown ? await textOf(source, shown, sequence, null) : null;
    const [companion] = await this._others.open(run === null ? [] : [run]);
    let [asked, from]: [IGeneration | undefined, IRunSource | null] = [undefined, source];
    if (run !== null) {
      from = companion?.source ?? null;
      asked = from ? generationOf(await new GenerationReader().read(from), other) : undefined;
    } else if (shown) {
      asked = other === null ? controlOf(generations, shown) : generationOf(generations, other);
    }
    const beside_ =
      asked && from ? await textOf(from, asked, sequence, run && (companion?.name ?? run)) : null;
    const isAsked = run !== null || other !== null;
    return {
      generations,
      text,
      other: beside_,
      missing:
        isAsked && beside_ === null ? { generation: other, run: run && (companion?.name ?? run) } : null,
      difference: text && beside_ ? firstDifference(text, beside_) : null,
      runs: await this._listed()
    };
  }

  private async _listed(): Promise<ITextFacts['runs']> {
    // Runs that cannot be listed are no reason to show nothing.
    const all = (await (this._listing ??= this._runs?.list().catch(() => []))) ?? [];
    return all.filter(({ id }) => id !== this._source.id).slice(0, MOST_RUNS);
  }

  private readonly _generations = new GenerationReader();
  private readonly _others: OtherRuns;
  private _listing: ReturnType<IViewRuns['list']> | undefined;
  private _reading: { readonly key: string; readonly facts: Promise<ITextFacts> } | null = null;
  private _last: ITextFacts | null = null;
}

async function textOf(
  source: IRunSource,
  generation: IGeneration,
  sequence: number,
  run: string | null
): Promise<IWrittenText> {
  const tokens = await readTokens(source, generation.generation, sequence);
  const tokenAt: IWrittenText['tokenAt'] = position =>
    readToken(source, generation.generation, sequence, position);
  return { generation, sequence, tokens, tokenAt, run };
}

type Text = Pick<IWrittenText, 'generation' | 'tokens'>;

/**
 * The first position at which two texts differ: another token, or the end of one. Null where they are the
 * same as far as both are written: of one that is written now nobody knows how it goes on.
 */
function firstDifference(one: Text, other: Text): number | null {
  const others = new Map(other.tokens.map(token => [token.position, token]));
  for (const { position, id, piece } of one.tokens) {
    const companion = others.get(position);
    if (companion !== undefined && (companion.id !== id || companion.piece !== piece)) {
      return position;
    }
  }
  const [end, otherEnd] = [lengthOf(one), lengthOf(other)];
  const shorter = end < otherEnd ? one : other;
  return end === otherEnd || isUnderWay(shorter.generation) ? null : Math.min(end, otherEnd);
}

/** Positions of a text as far as it is written. */
export const lengthOf = ({ tokens }: Pick<IWrittenText, 'tokens'>): number =>
  (tokens[tokens.length - 1]?.position ?? -1) + 1;
