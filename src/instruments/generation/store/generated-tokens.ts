import { readableStreams } from '../../../protocol/streams';
import { STREAMS } from '../../../protocol/streams';
import { boundedText } from '../../../protocol/texts';
import type { IRowsQuery, IStreamRows } from '../../../store/row-store';
import type { IRunSource } from '../../../store/source';
import { type ITokenLocation, RowCells } from './generation-rows';

export interface ICandidate {
  readonly id: number;
  /** The token by itself. */
  readonly text: string;
  readonly logit: number;
  /** At temperature 1. */
  readonly probability: number;
  /** After temperature, top-k and top-p, 0 where it was cut off; NaN for tokens of the prompt. */
  readonly sampled: number;
}

/** One position of a sequence, as the stream `tokens` has it. Unknown numbers are NaN. */
export interface IToken {
  readonly sequence: number;
  readonly position: number;
  readonly step: number;
  readonly isPrompt: boolean;
  readonly id: number;
  /** What it adds to the text; empty while its bytes are no whole character. */
  readonly text: string;
  /** The token by itself, bytes that are no whole character as `<0xE2>`. */
  readonly piece: string;
  readonly logit: number;
  /** At temperature 1 and over the whole vocabulary, 0 to 1. */
  readonly probability: number;
  readonly sampledProbability: number;
  /** Tokens that are more probable; -1 where nothing predicts it. */
  readonly rank: number;
  /** Of the distribution, nats. */
  readonly entropy: number;
  /** The most probable first; empty where they were not asked for. */
  readonly candidates: readonly ICandidate[];
  /** Where the tensors of the token as input of the model lie. */
  readonly location: ITokenLocation;
}

/** Characters that one token, or one of its candidates, is shown with at most. */
const MOST_TEXT = 1000;
const MOST_CANDIDATES = 100;
export const MOST_POSITIONS = 1 << 24;
const MOST_SEQUENCES = 1 << 16;

/** What is said of a token beside its candidates, which are most of its bytes. */
const TOKEN_COLUMNS = STREAMS.tokens.fields
  .map(({ name }) => name)
  .filter(name => !name.startsWith('candidate_'));

/** What says where a token stands, where its tensors lie, and what it is called. */
export const LOCATION_COLUMNS = [
  'sequence',
  'position',
  'piece',
  'tensor_step',
  'tensor_pass',
  'tensor_offset'
];

type Tables = Pick<IRunSource, 'hello' | 'table'>;

/**
 * Read the tokens of a generation without their candidates, by sequence and then position. Of a row that
 * came twice the newer one counts.
 * @param sequence - This one only; all when absent.
 */
export function readTokens(
  source: Tables,
  generation: number,
  sequence?: number,
  signal?: AbortSignal,
  columns: readonly string[] = TOKEN_COLUMNS
): Promise<IToken[]> {
  return read(
    source,
    { where: { generation, ...(sequence === undefined ? {} : { sequence }) }, columns },
    signal
  );
}

/** Read one token with its candidates; undefined where there is none. */
export async function readToken(
  source: Tables,
  generation: number,
  sequence: number,
  position: number,
  signal?: AbortSignal
): Promise<IToken | undefined> {
  return (await read(source, { where: { generation, sequence, position } }, signal))[0];
}

async function read(source: Tables, query: IRowsQuery, signal?: AbortSignal): Promise<IToken[]> {
  return readableStreams(source.hello?.streams).has('tokens')
    ? tokensOf(await source.table('tokens', query, signal))
    : [];
}

/** The tokens of rows of their stream, of one generation. Rows without a place in a text are left out. */
export function tokensOf(rows: IStreamRows): IToken[] {
  const cells = new RowCells(rows);
  const newest = new Map<number, TokenRow>();
  for (let at = 0; at < rows.length; at += 1) {
    const [sequence, position] = [cells.count('sequence', at), cells.count('position', at)];
    const isPlaced = sequence >= 0 && sequence < MOST_SEQUENCES && position >= 0 && position < MOST_POSITIONS;
    const key = sequence * MOST_POSITIONS + position;
    const step = cells.count('step', at);
    if (isPlaced && !((newest.get(key)?.step ?? -1) > step)) {
      newest.set(key, new TokenRow(cells, at, sequence, position, step));
    }
  }
  return [...newest.values()].sort((a, b) => a.sequence - b.sequence || a.position - b.position);
}

/** A row of the stream `tokens`, of which only what is asked for is read: a text has thousands of them. */
class TokenRow implements IToken {
  constructor(
    private readonly _cells: RowCells,
    private readonly _at: number,
    readonly sequence: number,
    readonly position: number,
    readonly step: number
  ) {}

  get isPrompt(): boolean {
    return this._cells.text('kind', this._at) === 'prompt';
  }

  get id(): number {
    return this._cells.count('id', this._at);
  }

  get text(): string {
    return boundedText(this._cells.text('text', this._at), MOST_TEXT);
  }

  get piece(): string {
    return boundedText(this._cells.text('piece', this._at), MOST_TEXT);
  }

  get logit(): number {
    return this._cells.number('logit', this._at);
  }

  get probability(): number {
    return share(this._cells.number('probability', this._at));
  }

  get sampledProbability(): number {
    return share(this._cells.number('sampled_probability', this._at));
  }

  get rank(): number {
    return this._cells.count('rank', this._at);
  }

  get entropy(): number {
    return this._cells.number('entropy', this._at);
  }

  get location(): ITokenLocation {
    const [cells, at] = [this._cells, this._at];
    return {
      position: this.position,
      step: cells.count('tensor_step', at),
      pass: Math.max(0, cells.count('tensor_pass', at)),
      offset: Math.max(0, cells.count('tensor_offset', at))
    };
  }

  get candidates(): readonly ICandidate[] {
    return candidatesAt(this._cells, this._at);
  }
}

function candidatesAt(cells: RowCells, at: number): ICandidate[] {
  const [texts, logits] = [cells.list('candidate_texts', at), cells.list('candidate_logits', at)];
  const probabilities = cells.list('candidate_probabilities', at);
  const sampled = cells.list('candidate_sampled', at);
  const ids = cells.list('candidate_ids', at).slice(0, MOST_CANDIDATES);
  return ids.map((id, index) => ({
    id: Number(id),
    text: boundedText(texts[index], MOST_TEXT),
    logit: Number(logits[index] ?? NaN),
    probability: share(Number(probabilities[index] ?? NaN)),
    sampled: share(Number(sampled[index] ?? NaN))
  }));
}

/** A probability, or NaN for what is none. */
const share = (value: number): number => (value >= 0 && value <= 1.0001 ? Math.min(1, value) : NaN);

/** Where the tensors of a text lie, and what its tokens are. */
export interface ITextLocations {
  readonly locations: readonly ITokenLocation[];
  /** Each token by itself, by position; empty where it is not known. */
  readonly tokens: readonly string[];
}

/** Read where a text lies. */
export async function readLocations(
  source: Tables,
  generation: number,
  sequence: number
): Promise<ITextLocations> {
  const read = await readTokens(source, generation, sequence, undefined, LOCATION_COLUMNS);
  const end = read.reduce((most, { position }) => Math.max(most, position + 1), 0);
  const tokens = new Array<string>(end).fill('');
  for (const { position, piece } of read) {
    tokens[position] = piece;
  }
  return { tokens, locations: read.map(({ location }) => location) };
}
