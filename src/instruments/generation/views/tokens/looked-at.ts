import type { IRunSource } from '../../../../store/source';
import { rankedKeys, type IRankedKey } from '../attention/attention-maps';
import { AttentionReader } from '../attention/attention-reader';
import type { IAttentionText } from '../attention/attention-text';
import type { IWrittenText } from './text-facts';

/**
 * What tokens of a text look at: their attention, the mean of heads and layers. It is read when somebody
 * first points.
 */
export class LookedAt {
  /** @param _came - Called when it was read. */
  constructor(
    source: IRunSource,
    private readonly _came: () => void
  ) {
    this._reader = new AttentionReader(source);
  }

  /**
   * The keys of a token, those that it looks at most first; none while they are read, and where none were
   * traced.
   * @param layer - Of this layer alone, where it has attention.
   */
  of(
    { generation, run, sequence }: IWrittenText,
    position: number,
    layer: number | null
  ): readonly IRankedKey[] {
    const { generation: number, lastStep, request } = generation;
    if (request?.attention !== true || run !== null) {
      return [];
    }
    const key = `${number} ${sequence} ${lastStep}`;
    if (key !== this._key) {
      this._key = key;
      void this._read(key, { generation: number, sequence });
    }
    const text = this._text;
    if (text?.generation !== number || text.sequence !== sequence) {
      return [];
    }
    const { layers } = text.read;
    const heads = Array.from({ length: text.heads }, (_, head) => head);
    const wanted = layer !== null && layers.includes(layer) ? [layer] : layers;
    return rankedKeys(text, wanted, heads, position)?.keys.filter(({ share }) => share > 0) ?? [];
  }

  private async _read(key: string, text: { generation: number; sequence: number }): Promise<void> {
    const question = { ...text, layers: 'all', step: null, near: null };
    // Whatever keeps it from being read, the text stays what it is.
    const found = await this._reader.read(question, new AbortController().signal).catch(() => null);
    if (found?.text && key === this._key) {
      this._text = found.text;
      this._came();
    }
  }

  private readonly _reader: AttentionReader;
  private _key = '';
  private _text: IAttentionText | null = null;
}
