import { PLACE_COLUMNS, readTokens, type IToken } from './generated-tokens';
import type { ITokenPlace } from './generation-rows';
import type { IRunSource, SourceChange } from '../../../store/source';

/** Where the tensors of a text lie, and what its tokens are. */
export interface ITextPlaces {
  readonly places: readonly ITokenPlace[];
  /** Each token by itself, by position; empty where it is not known. */
  readonly tokens: readonly string[];
}

/** Reads the places of one text at a time, and again when there are more tokens. */
export class TextPlaces {
  constructor(private readonly _source: Pick<IRunSource, 'hello' | 'table'>) {}

  /** Take note of news of the run. */
  note(change: SourceChange): void {
    if (change.kind === 'rows' && change.stream === 'tokens') {
      this._read = null;
    }
  }

  read(generation: number, sequence: number): Promise<ITextPlaces> {
    const key = `${generation} ${sequence}`;
    if (this._read !== null && this._key === key) {
      return this._read;
    }
    const read = readTokens(this._source, generation, sequence, undefined, PLACE_COLUMNS).then(placesOf);
    [this._key, this._read] = [key, read];
    read.catch(() => {
      this._read = this._read === read ? null : this._read;
    });
    return read;
  }

  private _key = '';
  private _read: Promise<ITextPlaces> | null = null;
}

function placesOf(read: readonly IToken[]): ITextPlaces {
  const end = read.reduce((most, { position }) => Math.max(most, position + 1), 0);
  const tokens = new Array<string>(end).fill('');
  for (const { position, piece } of read) {
    tokens[position] = piece;
  }
  return { tokens, places: read.map(({ place }) => place) };
}
