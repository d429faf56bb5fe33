import type { TokensOptions } from '../../../../protocol/views.generated';
import { ReadOnce } from '../../../../store/read-once';
import type { IRunSource, SourceChange } from '../../../../store/source';
import { OtherRuns } from '../../../../views/kits/lines/other-runs';
import type { IViewRuns } from '../../../../views/view';
import type { IGeneration, IToken } from '../../store/generations';
import {
  controlOf,
  generationOf,
  readGenerations,
  readToken,
  readTokens,
  isUnderWay
} from '../../store/generations';
import { formatInteger, formatNumber } from '../../../../charts';
import { perturbText } from '../../../../views/shared/perturb-text';
import type { SiteInfo } from '../../../../protocol/messages.generated';
import type { ITip } from '../../../../views/shared/table';
import { quoted } from '../../../../views/kits/text/token-words';
import type { Translate } from '../../../../views/shared/translate';
import { isPredicted, surpriseOf } from './token-color';

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
      asked = from ? generationOf(await readGenerations(from), other) : undefined;
    } else if (shown) {
      asked = other === null ? controlOf(generations, shown) : generationOf(generations, other);
    }
    const compared =
      asked && from ? await textOf(from, asked, sequence, run && (companion?.name ?? run)) : null;
    const isAsked = run !== null || other !== null;
    return {
      generations,
      text,
      other: compared,
      missing:
        isAsked && compared === null ? { generation: other, run: run && (companion?.name ?? run) } : null,
      difference: text && compared ? firstDifference(text, compared) : null,
      runs: await this._listed()
    };
  }

  private async _listed(): Promise<ITextFacts['runs']> {
    // Runs that cannot be listed are no reason to show nothing.
    const all = (await (this._listing ??= this._runs?.list().catch(() => []))) ?? [];
    return all.filter(({ id }) => id !== this._source.id).slice(0, MOST_RUNS);
  }

  private readonly _generations = new ReadOnce(readGenerations);
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

/** A token, as a person reads it. */
export const tokenName = ({ piece, text }: Pick<IToken, 'piece' | 'text'>): string =>
  quoted(piece === '' ? text : piece);

/** Say how a generation stands: its place in the queue, or how much of it is written and how fast. */
export function stateWords(
  { message, place, request, seconds, sequences, state, tokens }: IGeneration,
  t: Translate
): string {
  const rate = tokens > 0 && seconds > 0 ? t(', %1 tokens/s', formatNumber(tokens / seconds, 2)) : '';
  const count = formatInteger(tokens);
  const asked = (request?.tokens ?? 64) * Math.max(1, sequences);
  switch (state) {
    case 'queued':
      return place > 0 ? t('waits, place %1 in the queue', formatInteger(place)) : t('waits to be written');
    case 'running':
      return t('%1 of %2 tokens%3', count, formatInteger(asked), rate);
    case 'finished':
      return t('%1 tokens%2', count, rate);
    case 'cancelled':
      return t('cancelled after %1 tokens', count);
    case 'failed':
      return message === '' ? t('failed after %1 tokens', count) : t('failed');
  }
}

/** Name a text: its generation, of which run, how it stands, and what was done to the model. */
export function textTitle(
  { generation, run }: IWrittenText,
  sites: readonly SiteInfo[],
  t: Translate
): string {
  const number = formatInteger(generation.generation);
  const name = run === null ? t('Generation %1', number) : t('Generation %1 of %2', number, run);
  const perturb = generation.control > 0 ? generation.request?.perturb : null;
  const words = [stateWords(generation, t), ...(perturb ? [perturbText(perturb, sites)] : [])];
  return `${name}: ${words.join(' · ')}`;
}

/** The least probable token that the model wrote; of the prompt where it wrote none. */
export function mostSurprising(tokens: readonly IToken[]): IToken | null {
  const written = tokens.filter(({ isPrompt }) => !isPrompt);
  const able = (written.length > 0 ? written : tokens).filter(each => !Number.isNaN(surpriseOf(each)));
  return able.reduce<IToken | null>(
    (most, each) => (most && surpriseOf(most) >= surpriseOf(each) ? most : each),
    null
  );
}

/** Whether the model gave a token no number, where something predicts it. */
export const isLost = (token: IToken): boolean => isPredicted(token) && Number.isNaN(surpriseOf(token));

export const lostWords = (token: IToken, t: Translate): string =>
  t(
    'The probability is not finite first of %1 at position %2.',
    tokenName(token),
    formatInteger(token.position)
  );

export function surpriseWords(token: IToken, t: Translate): string {
  return t(
    'Most surprising: %1 at position %2, %3 bits.',
    tokenName(token),
    formatInteger(token.position),
    formatNumber(surpriseOf(token), 2)
  );
}

/** Say where two texts differ first, or that they do not. */
export function differenceWords(
  text: IWrittenText,
  other: IWrittenText,
  difference: number | null,
  t: Translate
): string {
  if (difference === null) {
    const length = Math.min(lengthOf(text), lengthOf(other));
    return length === 0
      ? t('Nothing of both texts is written yet.')
      : t('Both texts are the same, as far as they are written: %1 tokens.', formatInteger(length));
  }
  const [one, two] = [text, other].map(({ tokens }) =>
    tokens.find(({ position }) => position === difference)
  );
  // Two tokens may look the same.
  const isAlike = one && two && tokenName(one) === tokenName(two);
  const word = (token: IToken | undefined): string =>
    !token
      ? t('nothing')
      : isAlike
        ? t('%1 (id %2)', tokenName(token), formatInteger(token.id))
        : tokenName(token);
  return t('First difference at position %1: %2 and %3.', formatInteger(difference), word(one), word(two));
}

/** Say that what was to be shown beside a text is not there. */
export function missingWords({ generation, run }: IMissingText, t: Translate): string {
  if (run === null) {
    return t('There is no generation %1 to show beside it.', formatInteger(generation ?? NaN));
  }
  return generation === null
    ? t('%1 has no generated text, or cannot be opened.', run)
    : t('%1 has no generation %2, or cannot be opened.', run, formatInteger(generation));
}

/** Say what is known of a token, a line each. */
export function tokenTip(token: IToken, t: Translate): ITip {
  const { entropy, id, isPrompt, position, probability, rank, sampledProbability } = token;
  const known = isPredicted(token);
  const line = (name: string, value: string): ITip['lines'][number] => ({ name, value });
  return {
    heading: tokenName(token),
    lines: [
      line(t('position'), formatInteger(position)),
      line(t('written by'), isPrompt ? t('the prompt') : t('the model')),
      line(t('token id'), formatInteger(id)),
      ...(known
        ? [
            line(t('probability'), formatNumber(probability, 3)),
            ...(isPrompt ? [] : [line(t('after the filters'), formatNumber(sampledProbability, 3))]),
            line(t('surprise'), t('%1 bits', formatNumber(surpriseOf(token), 3))),
            line(t('rank'), rank < 0 ? 'NaN' : formatInteger(rank)),
            line(t('entropy'), t('%1 nats', formatNumber(entropy, 3)))
          ]
        : [line(t('probability'), t('nothing predicts the first token'))]),
      ...(token.text === '' && /<0x/.test(token.piece) ? [line(t('bytes'), t('no whole character yet'))] : [])
    ]
  };
}
