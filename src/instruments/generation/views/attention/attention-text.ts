import { formatInteger, formatNumber } from '../../../../charts';
import type { IGenerationRead } from '../../store/generation-rows';
import { fittedToken } from '../shared/token-axis';
import { quoted } from '../../../../views/kits/text/token-words';
import type { IContent, IMark } from '../../../../views/shared/content';
import type { Control } from '../../../../views/shared/control';
import type { IPictured } from '../../../../views/shared/view-model';

/** Positions of which about every second one has a label. */
const MOST_LABELS = 48;
/** Space for a token beside the axis, pixels. */
const LABEL_PIXELS = 76;

/** A text whose attention is drawn, and what is here of it. */
export interface IAttentionText {
  readonly read: IGenerationRead;
  /** Number of the generation; null where it is a sample of a training step. */
  readonly generation: number | null;
  /** Newest step of its rows. */
  readonly step: number;
  /** Row of the batch, and how many there are. */
  readonly sequence: number;
  readonly sequences: number;
  /** Text of each position; empty where it is not known. */
  readonly tokens: readonly string[];
  readonly heads: number;
  /** Set where finer cells are read yet. */
  readonly isCoarse?: boolean;
  /** Reads the tokens, and finer cells, which have not come yet; absent where they have. */
  readonly rest?: () => Promise<void>;
}

/** Name a position: its number, and its text where that is known. */
export function positionName({ tokens }: Pick<IAttentionText, 'tokens'>, position: number): string {
  const token = tokens[position];
  return token === undefined ? formatInteger(position) : `${formatInteger(position)} ${quoted(token)}`;
}

/** Name the positions from one to another: `16–31`, or the one where they are the same. */
export function spanName(text: Pick<IAttentionText, 'tokens'>, first: number, last: number): string {
  return first === last ? positionName(text, first) : `${formatInteger(first)}–${formatInteger(last)}`;
}

/**
 * What the axes say of positions, by position: tokens, and where not every one has a label their numbers too.
 */
export function axisLabels(
  { tokens }: Pick<IAttentionText, 'tokens'>,
  [first, last]: readonly [number, number]
): Record<number, string> {
  const span = last - first + 1;
  // Of many positions the axis has round numbers only.
  const every = 10 ** Math.max(0, Math.floor(Math.log10(span / 100)));
  const labels: Record<number, string> = {};
  for (let at = Math.ceil(first / every) * every; at <= Math.min(last, tokens.length - 1); at += every) {
    const space = span <= MOST_LABELS ? LABEL_PIXELS : LABEL_PIXELS / 2;
    const token = fittedToken(tokens[at] ?? '', space).text;
    labels[at] = span <= MOST_LABELS ? token : `${formatInteger(at)} ${token}`;
  }
  return labels;
}

export const percent = (share: number): string =>
  Number.isFinite(share) ? `${formatNumber(100 * share, 3)} %` : formatNumber(share);

/** What a picture of attention is asked to draw. */
export interface IAttentionDrawing {
  readonly text: IAttentionText;
  /** Layers and heads, ascending; at least one of each. */
  readonly layers: readonly number[];
  readonly heads: readonly number[];
  /** Position that is looked at: the newest that was read where none is chosen; null where there is none. */
  readonly position: number | null;
  /** Whether it was chosen, here or in another view. */
  readonly isChosen: boolean;
  /** Step that was asked for; null follows the newest. */
  readonly step: number | null;
}

/** One kind of picture of attention: what it draws, and what its places mean. */
export interface IAttentionPicture extends IPictured {
  draw(request: IAttentionDrawing): IContent;
  controls(): Control[];
  clicked(mark: IMark): void;
  insight(): IMark | null;
  pinned?(): IMark | null;
  /** What belongs to a mark, such as the row of a cell. */
  bandOf?(mark: IMark): readonly IMark[];
}
