import type { ColorScale, IPlace, Row } from '../../../../charts';
import { formatInteger, formatNumber, contrastColor } from '../../../../charts';
import type { IContent, IMark } from '../../../../views/shared/content';
import type { ITip } from '../../../../views/shared/table';
import type { LensOptions } from '../../../../protocol/views.generated';
import type { Translate } from '../../../../views/shared/translate';
import { omissionWords } from '../../../../views/shared/describe';
import { layerWords } from '../../../../views/shared/layers';
import type { ILensCell, Lens } from '../../store/effects';
import type { IGeneration } from '../../store/generations';
import type { ILayerCell, ITokenWindow, TokenTexts } from '../shared/token-axis';
import { LayerMap, positionName, fittedToken } from '../shared/token-axis';
import { quoted, tokenWords } from '../../../../views/kits/text/token-words';
import { promptWords, surenessScale } from '../shared/generation-view';

export interface ILensFacts {
  readonly generation: IGeneration;
  readonly sequence: number;
  readonly lens: Lens;
  readonly layers: readonly number[];
  readonly leads: readonly ILead[];
}

/** Name the picture: `Logit lens of “The capital of”, generation 3`. */
export function lensTitle({ generation, sequence, lens, layers }: ILensFacts, t: Translate): string {
  const prompt = promptWords(generation, sequence);
  const number = formatInteger(generation.generation);
  return [
    prompt === ''
      ? t('Logit lens of generation %1', number)
      : t('Logit lens of %1, generation %2', quoted(prompt), number),
    ...(generation.sequences > 1 ? [t('sequence %1', formatInteger(sequence))] : []),
    ...(layers.length < lens.layers.length ? [layerWords(layers, t)] : [])
  ].join(', ');
}

/** What is not literal of the picture. */
export function lensCaption({ lens, layers, leads }: ILensFacts, outlined: boolean, t: Translate): string[] {
  const [deepest] = lens.layers.slice(-1);
  return [
    t(
      'Each cell is the token that comes next by that layer: its hidden state, read through the model’s own final norm and output layer.'
    ),
    ...(outlined && leads.some(({ layer }) => layer !== null)
      ? [
          t(
            'Outlined: from that layer up to layer %1 the token that came in the end leads.',
            formatInteger(deepest ?? NaN)
          )
        ]
      : []),
    ...(deepest !== undefined && !layers.includes(deepest)
      ? [t('Layers that are not drawn count in this.')]
      : []),
    ...omissionWords({ evictedRows: lens.evictedRows }, t)
  ];
}

/**
 * Say from which layer on the final token leads, at the position that is looked at and over all.
 * @param cell - What the deepest layer says at that position; null where nothing is known of it.
 * @param final - The token that came after it, in quotation marks; null where none did.
 */
export function lensSummary(
  { lens, leads }: ILensFacts,
  cell: ILensCell | null,
  final: string | null,
  t: Translate
): string {
  const [own] = leads.filter(({ position }) => position === cell?.position);
  const [best] = cell?.candidates ?? [];
  const where = formatInteger(cell?.position ?? NaN);
  return [
    ...(own && final !== null
      ? [
          own.layer === null
            ? t(
                '%1, which came after position %2, leads in no layer up to the last one (rank %3 there).',
                final,
                where,
                formatInteger(cell?.rank ?? NaN)
              )
            : t(
                '%1, which came after position %2, first leads in layer %3 of %4.',
                final,
                where,
                formatInteger(own.layer),
                layerWords(lens.layers, t)
              )
        ]
      : best
        ? [
            t(
              'After position %1 the last layer has %2 first, probability %3.',
              where,
              quoted(best.text),
              formatNumber(best.probability, 3)
            )
          ]
        : []),
    ...overallWords(leads, t)
  ].join(' ');
}

function overallWords(leads: readonly ILead[], t: Translate): string[] {
  const layers = leads.flatMap(({ layer }) => (layer === null ? [] : [layer]));
  const never = leads.length - layers.length;
  if (leads.length < 2 || layers.length === 0) {
    return [];
  }
  const [low, high] = layers.reduce(
    ([a, b], each) => [Math.min(a, each), Math.max(b, each)],
    [Infinity, -Infinity]
  );
  return [
    t(
      'Over %1 positions the final token first leads in layer %2 (median; layers %3 to %4).',
      formatInteger(layers.length),
      formatInteger(medianLayer(leads)),
      formatInteger(low),
      formatInteger(high)
    ),
    ...(never === 0
      ? []
      : never === 1
        ? [t('At 1 position it does not lead in the last layer.')]
        : [t('At %1 positions it does not lead in the last layer.', formatInteger(never))])
  ];
}

/** From which layer on the token that came in the end is the most probable one. */
interface ILead {
  /** Of the token that was read. */
  readonly position: number;
  /** The first layer from which on it leads up to the deepest; null where it does not lead there. */
  readonly layer: number | null;
}

/** Say of every position whose next token is known from which layer on that token leads, by position. */
export function leadsOf(lens: Lens): ILead[] {
  const upwards = [...lens.layers].reverse();
  return lens.positions.flatMap(position => {
    const ranks = upwards.map(layer => lens.rank[lens.rowAt(layer, position)] ?? -1);
    // Of a position that is not read to its end yet nothing is known.
    if (!((ranks[0] ?? -1) >= 0)) {
      return [];
    }
    const loses = ranks.findIndex(rank => rank !== 0);
    const leading = loses < 0 ? ranks.length : loses;
    return [{ position, layer: leading === 0 ? null : (upwards[leading - 1] ?? null) }];
  });
}

/** The median of the layers where tokens first lead, the lower of two; NaN where none leads. */
export function medianLayer(leads: readonly ILead[]): number {
  const layers = leads.flatMap(({ layer }) => (layer === null ? [] : [layer])).sort((a, b) => a - b);
  return layers[(layers.length - 1) >> 1] ?? NaN;
}

export type LensColor = Required<LensOptions>['color'];

/** What colours in words, with its unit. */
export function colorWords(color: LensColor, t: Translate): string {
  const words: Readonly<Record<LensColor, string>> = {
    probability: t('probability'),
    final: t('probability of the final token'),
    rank: t('rank of the final token, from 0'),
    entropy: t('entropy (nats)')
  };
  return words[color];
}

/** The number that colours the cell of a row; null if it was not read, or no token came after it. */
function colorValue(lens: Lens, row: number, color: LensColor): number | null {
  if (row < 0) {
    return null;
  }
  const hasToken = (lens.rank[row] ?? -1) >= 0;
  switch (color) {
    case 'probability':
      return lens.bestOf(row);
    case 'final':
      return hasToken ? (lens.probability[row] ?? NaN) : null;
    case 'rank':
      return hasToken ? (lens.rank[row] ?? NaN) : null;
    case 'entropy':
      return lens.entropy[row] ?? NaN;
  }
}

/** Pixels of a layer. */
const ROW = 20;
/** Narrower cells have no text, pixels. */
export const LEAST_CELL = 24;
/** Narrower ones have no outline: nothing else would be seen of them. */
export const LEAST_OUTLINED = 8;

export interface ILensRequest {
  readonly lens: Lens;
  readonly layers: readonly number[];
  readonly leads: readonly ILead[];
  readonly color: LensColor;
  readonly texts: TokenTexts;
  readonly axis: ITokenWindow;
}

/** What each layer says at each position: the pictures of a logit lens. */
export class LensMap extends LayerMap {
  protected override readonly firstColumn = Infinity;

  draw(request: ILensRequest): Pick<IContent, 'extent' | 'printed' | 'recipe'> {
    const { axis, color, layers, leads, lens, texts } = request;
    this._lens = lens;
    this._texts = texts;
    return this.take({
      layers,
      positions: lens.positions,
      axis,
      texts,
      pixels: ROW,
      valueOf: (layer, position) => colorValue(lens, lens.rowAt(layer, position), color),
      scaleOf: values => surenessScale(values, color),
      xTitle: this.t('token read, and its position'),
      legendTitle: colorWords(color, this.t),
      marks: scale => ({
        cells: this._textRows(request, scale),
        outlines: axis.pixels < LEAST_OUTLINED ? [] : leads.flatMap(lead => this._outline(lead, axis))
      })
    });
  }

  override probe(point: IPlace): IMark | null {
    const layer = this.rows[Math.round(point.y)];
    return layer === undefined || !this._lens?.at(layer, Math.round(point.x)) ? null : super.probe(point);
  }

  /** The cell of a mark; null where it was not read. */
  readAt(mark: IMark): ILensCell | null {
    const { layer, position } = this.coordinatesOf(mark);
    return layer === null || position === null ? null : (this._lens?.at(layer, position) ?? null);
  }

  /** The token that came in the end, in quotation marks; null where none did. */
  finalOf({ candidates, position, rank, token }: ILensCell): string | null {
    const text = this._texts.get(position + 1) ?? candidates.find(candidate => candidate.id === token)?.text;
    return rank < 0 || !(token >= 0) ? null : text === undefined ? this.t('token %1', token) : quoted(text);
  }

  /** Texts of the cells that are shown, and of as many on either side. */
  private _textRows({ axis: { shown, pixels }, color, lens }: ILensRequest, scale: ColorScale): Row[] {
    const around = shown[1] - shown[0];
    const columns =
      pixels < LEAST_CELL
        ? []
        : lens.positions.filter(each => each > shown[0] - around && each < shown[1] + around);
    return columns.flatMap(position =>
      this.rows.flatMap((layer, y) => {
        const cell = lens.at(layer, position);
        const [best] = cell?.candidates ?? [];
        const value = colorValue(lens, lens.rowAt(layer, position), color);
        if (!best || value === null || !Number.isFinite(value)) {
          return [];
        }
        const { text, pixels: taken } = fittedToken(best.text, pixels - 6);
        const back = scale.colorAt(scale.entry(value) / 255);
        return [{ x: position, y, text, color: contrastColor(back), room: taken + 4 }];
      })
    );
  }

  /** Where the final token leads, within about what is visible: from its first drawn layer to the deepest. */
  private _outline({ layer, position }: ILead, { shown }: ITokenWindow): Row[] {
    const around = shown[1] - shown[0];
    const rows = this.rows.flatMap((each, row) => (layer !== null && each >= layer ? [row] : []));
    const last = rows.at(-1);
    return last === undefined || position < shown[0] - around || position > shown[1] + around
      ? []
      : [{ x: position - 0.46, x2: position + 0.46, y: -0.46, y2: last + 0.46 }];
  }

  protected wordsOf({ layer, position }: ILayerCell): ReturnType<LayerMap['wordsOf']> {
    const cell = this._lens?.at(layer, position) ?? null;
    return {
      where: this._position(position),
      value: cell ? this._cellWords(cell) : this.t('not read'),
      tip: cell && this._tip(cell)
    };
  }

  private _tip(cell: ILensCell): ITip {
    const { t } = this;
    const final = this.finalOf(cell);
    return {
      heading: t('layer %1, %2', formatInteger(cell.layer), this._position(cell.position)),
      lines: [
        ...cell.candidates.map(({ id, text, probability }) => ({
          name: `${id === cell.token && final !== null ? '▸ ' : ''}${quoted(text)}`,
          value: formatNumber(probability, 3)
        })),
        ...(final === null
          ? []
          : [
              {
                name: t('in the end %1', final),
                value: t('%1, rank %2', formatNumber(cell.probability, 3), formatInteger(cell.rank))
              }
            ]),
        { name: t('entropy'), value: t('%1 nats', formatNumber(cell.entropy, 3)) }
      ]
    };
  }

  private _cellWords(cell: ILensCell): string {
    const [best] = cell.candidates;
    const final = this.finalOf(cell);
    const words = best
      ? `${tokenWords(best.text)} ${formatNumber(best.probability, 3)}`
      : this.t('no candidates');
    return final === null
      ? words
      : this.t('%1; in the end %2, rank %3', words, final, formatInteger(cell.rank));
  }

  private _position(position: number): string {
    return positionName(position, this._texts, this.t);
  }

  private _lens: Lens | null = null;
  private _texts: TokenTexts = new Map<number, string>();
}
