import { formatInteger, formatNumber } from '../../charts';
import type { IMomentGroups } from '../../store/moment-source';
import type { Loaded } from '../shared/content';
import { nothingYet } from '../shared/states';
import { numberColumn, type ITableColumn } from '../shared/table';
import { spans } from './line';
import { MomentPane } from './pane';
import type { MomentReader } from './reader';
import { quantityWords } from './words';
import { capital } from '../shared/describe';

/** Tensors that are listed. */
const MOST_MOVES = 15;

/** How one tensor's statistic moved from its first to its last value. */
export interface IGroupMove {
  readonly name: string;
  readonly first: number;
  readonly last: number;
  readonly delta: number;
  /** Change in parts of the first value; NaN where that is 0. */
  readonly relative: number;
  /** First step with values that are not finite; NaN where there is none. */
  readonly badAt: number;
}

/** How each tensor moved, those that moved most first; before them those with values that are not finite. */
export function movesOf(groups: IMomentGroups): IGroupMove[] {
  const moves = spans(groups).flatMap(([from, to], at): IGroupMove[] => {
    const values = groups.value.subarray(from, to);
    const first = values.find(Number.isFinite) ?? NaN;
    const last = values[values.length - 1] ?? NaN;
    const bad = groups.nonFinite.subarray(from, to).findIndex(count => count !== 0);
    const delta = last - first;
    const known = Number.isFinite(first) && to - from > 1;
    return known || bad >= 0
      ? [
          {
            name: String(groups.keys[at]?.[0] ?? ''),
            first,
            last,
            delta,
            relative: first === 0 ? NaN : delta / Math.abs(first),
            badAt: bad < 0 ? NaN : (groups.step[from + bad] ?? NaN)
          }
        ]
      : [];
  });
  const size = ({ delta }: IGroupMove): number => (Number.isFinite(delta) ? Math.abs(delta) : Infinity);
  const bad = ({ badAt }: IGroupMove): number => (Number.isNaN(badAt) ? Infinity : badAt);
  const order = (a: number, b: number): number => (a === b ? 0 : a < b ? -1 : 1);
  return moves.sort((a, b) => order(bad(a), bad(b)) || order(size(b), size(a)));
}

/** The tensors whose statistic moved most between the first and the last step. */
export class MovesPane extends MomentPane {
  protected async fill(reader: MomentReader, signal: AbortSignal): Promise<Loaded> {
    const { options, t } = this;
    const groups = await reader.groups({ ...this.question(['name'], 4), show: 'raw', smoothing: 0 }, signal);
    const moves = movesOf(groups);
    if (moves.length === 0) {
      return { state: nothingYet(t('Moves are known once there are two steps.'), this.actions, t) };
    }
    const quantity = quantityWords(options, t);
    const [most] = moves;
    const title = t('Largest moves of %1 between first and last step', quantity);
    return {
      content: {
        recipe: null,
        body: { columns: this._columns(moves), rows: Math.min(MOST_MOVES, moves.length) },
        extent: { x: [0, 1], y: [0, 1] },
        title,
        caption:
          moves.length > MOST_MOVES
            ? [t('%1 of %2 tensors are listed.', MOST_MOVES, formatInteger(moves.length))]
            : [],
        summary: t(
          '%1 moved most in %2: from %3 to %4.',
          capital(quantity),
          most?.name ?? '',
          formatNumber(most?.first ?? NaN, 3),
          formatNumber(most?.last ?? NaN, 3)
        )
      }
    };
  }

  private _columns(moves: readonly IGroupMove[]): ITableColumn[] {
    const { t } = this;
    const number = (title: string, name: Exclude<keyof IGroupMove, 'name'>, text?: Text): ITableColumn =>
      numberColumn(title, row => moves[row]?.[name] ?? NaN, text);
    const unless =
      (absent: string, write: Text): Text =>
      value =>
        Number.isNaN(value) ? absent : write(value);
    return [
      {
        title: t('tensor'),
        text: row => moves[row]?.name ?? '',
        sortBy: row => moves[row]?.name ?? '',
        press: row => this.open(moves[row]?.name ?? '')
      },
      number(t('first'), 'first'),
      number(t('last'), 'last'),
      number(t('change'), 'delta'),
      number(
        t('change, %'),
        'relative',
        unless('–', value => formatNumber(100 * value, 3))
      ),
      ...(moves.some(move => !Number.isNaN(move.badAt))
        ? [number(t('not finite from step'), 'badAt', unless('', formatInteger))]
        : [])
    ];
  }
}

type Text = (value: number) => string;
