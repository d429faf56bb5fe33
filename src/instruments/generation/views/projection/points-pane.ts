import type { UmapRun } from '../../projection/projector';
import { flagColor, formatFull, formatInteger, formatNumber, type IPlace } from '../../../../charts';
import { firstIndex } from '../../../../protocol/records';
import type { IPointed, ITextPosition } from '../../../../store/run-link';
import { type IMark, type IMoved, type INote, type Loaded, isInLoop } from '../../../../views/shared/content';
import type { Control } from '../../../../views/shared/control';
import type { ILinkedMarks } from '../../../../views/shared/links';
import { hold, moveOf } from '../../../../views/shared/scale';
import type { ITip } from '../../../../views/shared/table';
import {
  drawnOf,
  pointOf,
  pointsRecipe,
  projectionControls,
  axisTitles,
  countWords,
  farthestOf,
  projectionCaption,
  projectionSummary,
  projectionTitle,
  sequenceWords,
  tokenWords
} from './projection-words';
import { ProjectionPane } from './projection-pane';
import type { IProjected } from './projection-reader';
import { pointColors, promptName, TokenGroup } from './token-group';

/** How far from a point the pointer means it, and half the side of what marks it, pixels. */
const REACH = 12;
const HALF = 6;
/** Neighbours that a tip names. */
const NEIGHBOURS = 4;
/** Pixels of a plot where none is drawn. */
const USUAL = 500;

/** Tokens as points of a plane. */
export class PointsPane extends ProjectionPane {
  override readonly zooms = { axes: 'xy', least: 1e-9 } as const;

  override get followsPosition(): boolean {
    return true;
  }

  override get drawsWhileDragged(): boolean {
    return this._shown?.umap !== null;
  }

  override controls(): Control[] {
    const shown = this._shown;
    return projectionControls({
      source: this.source,
      options: this.requested,
      shape: this.reader.shape,
      grouped: shown ? this.groupOf(shown).size : 0,
      choose: options => this.pick(options),
      t: this.t
    });
  }

  override probe({ frame, x, y }: IPlace): IMark | null {
    const unit = this._unit(frame.width);
    const near = this._nearest(x, y);
    if (near === null || near.apart > REACH * unit) {
      return null;
    }
    this._cursor = near.at;
    return this._markOf(near.at);
  }

  override tipOf(mark: IMark): ITip | null {
    const shown = this._shown;
    const at = this._at(mark);
    const token = at === null ? undefined : shown?.text.tokens[at];
    if (!shown || at === null || !token) {
      return null;
    }
    const { t } = this;
    const neighbours = this._neighbours(shown, at);
    const { x, y } = pointOf(shown, at);
    return {
      heading: tokenWords(token, t),
      lines: [
        { name: t('prompt'), value: promptName(token.generation, token.prompt, shown.generations, t) },
        { name: t('sequence'), value: formatInteger(token.sequence) },
        { name: t('step'), value: formatInteger(token.step) },
        { name: t('place'), value: `${formatNumber(x, 3)}, ${formatNumber(-y, 3)}` },
        ...(neighbours.length > 0 ? [{ name: t('most alike, by cosine'), value: '' }] : []),
        ...neighbours.map(({ words, similarity }) => ({ name: words, value: formatNumber(similarity, 3) }))
      ]
    };
  }

  override move(key: string): IMoved | null {
    const shown = this._shown;
    const by = moveOf(key);
    const isGrouping = key === 'g';
    if (!shown || (by === undefined && !isGrouping)) {
      return null;
    }
    const at = this._moved(shown, by ?? [0, 0]);
    const token = at === null ? undefined : shown.text.tokens[at];
    if (at === null || !token) {
      return null;
    }
    this._cursor = at;
    const { x, y } = pointOf(shown, at);
    this.env.zoom?.reveal(x, y);
    const { t } = this;
    const mark = this._markOf(at);
    const [nearest] = this._neighbours(shown, at);
    const place = t('%1 across, %2 up', formatNumber(x, 3), formatNumber(-y, 3));
    const where = `${tokenWords(token, t)}, ${sequenceWords(token, shown.generations, t)}: ${place}`;
    const sentence = nearest ? t('%1. Most alike: %2', where, nearest.words) : where;
    if (isGrouping) {
      const group = this.groupOf(shown).toggled(token);
      this._choose(group);
      return { said: t('%1. The group has %2.', where, countWords(group.size, t)), mark };
    }
    return key === 'copy'
      ? { said: sentence, mark, copy: `${formatFull(x)}, ${formatFull(-y)}` }
      : { said: sentence, mark };
  }

  /** The tokens in a box, or in a loop, are looked at together. */
  override boxed(box: IMark | null): void {
    const shown = this._shown;
    if (!shown || !box?.y) {
      return;
    }
    const { loop, x, y } = box;
    const inside = drawnOf(shown).filter(at => {
      const place = pointOf(shown, at);
      return loop
        ? isInLoop(loop, place.x, place.y)
        : place.x >= x[0] && place.x <= x[1] && place.y >= y[0] && place.y <= y[1];
    });
    this._choose(new TokenGroup(inside.flatMap(at => shown.text.tokens[at] ?? [])));
  }

  override insight(): IMark | null {
    const farthest = this._shown && this.requested.method === 'pca' ? farthestOf(this._shown) : null;
    if (!farthest) {
      return null;
    }
    this._cursor = farthest.token;
    return this._markOf(farthest.token);
  }

  override pointedBy(mark: IMark): IPointed {
    const at = this._at(mark);
    const token = at === null ? undefined : this._shown?.text.tokens[at];
    const { generation = null, sequence = null, position = null, step = null } = token ?? {};
    return { layer: this._shown?.plane.layer ?? null, step, generation, sequence, position };
  }

  override marksOf({ generation, sequence, position }: IPointed): ILinkedMarks {
    const shown = this._shown;
    const at = shown?.text.tokens.findIndex(
      each => each.generation === generation && each.sequence === sequence && each.position === position
    );
    return {
      marks:
        shown && at !== undefined && at >= 0 && !Number.isNaN(shown.coordinates[2 * at])
          ? [this._markOf(at)]
          : []
    };
  }

  protected show(projected: IProjected): Loaded {
    this._shown = projected;
    const { t } = this;
    const { umap } = projected;
    if (umap && !umap.isDone && !umap.isStopped) {
      this.env.follow(umap.next());
    }
    const farthest = this.requested.method === 'pca' ? farthestOf(projected) : null;
    const recipeIn = (isDark: boolean): ReturnType<typeof pointsRecipe> =>
      pointsRecipe(
        projected,
        {
          colors: pointColors(projected.text.tokens, projected.generations, this.requested.color, isDark, t),
          group: this.groupOf(projected),
          isMarked: token => this._isMarked(token),
          named: farthest ? [farthest.token] : [],
          titles: axisTitles(projected, this.requested, t),
          textOf: at => this._textOf(projected, at)
        },
        isDark
      );
    const { recipe, ...extent } = recipeIn(this.env.isDark);
    return {
      content: {
        ...extent,
        recipe,
        printed: (dark = false) => recipeIn(dark).recipe,
        notes: this._notes(projected),
        title: projectionTitle(projected, this.subject, this.requested, t),
        caption: this._caption(projected),
        summary: projectionSummary(projected, this.requested, t),
        swatch: flagColor(this.requested.flag, this.source.hello?.flags.map(each => each.name) ?? [])
      }
    };
  }

  private _caption(projected: IProjected): string[] {
    const { size } = this.groupOf(projected);
    return [
      ...projectionCaption(projected, this.requested, this.t),
      ...(size > 0
        ? [this.t('A group of %1 stands out; the others are faint.', countWords(size, this.t))]
        : [])
    ];
  }

  private _notes({ umap }: IProjected): INote[] {
    const { t, _refused: refused } = this;
    const dismiss = (): void => {
      this._refused = 0;
      this.env.refresh(true);
    };
    return [
      ...(refused > 0
        ? [
            {
              text: t('%1 are too many for a group: draw a smaller loop.', countWords(refused, t)),
              action: { label: t('Dismiss'), run: dismiss }
            }
          ]
        : []),
      ...(umap === null || umap.isDone ? [] : [this._umapNote(umap)])
    ];
  }

  private _umapNote(umap: UmapRun): INote {
    const { done = 0, total = 1 } = umap.state ?? {};
    const percent = formatInteger(Math.floor((100 * done) / total));
    const { t } = this;
    if (!umap.isStopped) {
      return {
        text: t('UMAP, %1 % done', percent),
        action: { label: t('Cancel'), run: () => umap.stop() }
      };
    }
    const again = (): void => {
      this.reader.restart();
      this.env.refresh(true);
    };
    return {
      text: t('UMAP was stopped at %1 %: the points have not settled.', percent),
      tone: 'finding',
      action: { label: t('Begin again'), run: again }
    };
  }

  /** What is pinned in any view, else the position of the options in every sequence. */
  private _isMarked({ generation, sequence, position }: ITextPosition): boolean {
    const { pinnedPosition: pinned } = this.env;
    return pinned
      ? pinned.generation === generation && pinned.sequence === sequence && pinned.position === position
      : this.requested.position === position;
  }

  private _textOf({ generations, text }: IProjected, at: number): string {
    const token = text.tokens[at];
    return token ? `${tokenWords(token, this.t)}, ${sequenceWords(token, generations, this.t)}` : '';
  }

  private _choose(group: TokenGroup): void {
    const text = group.toText();
    this._refused = text === null ? group.size : 0;
    if (text === null) {
      this.env.refresh(true);
    } else {
      this.pick({ group: text });
    }
  }

  private _moved(shown: IProjected, [across, down]: readonly [number, number]): number | null {
    const drawn = drawnOf(shown);
    const before = this._cursor;
    const near = before === null ? 0 : firstIndex(drawn.length, place => (drawn[place] ?? 0) >= before);
    const now = drawn[hold(near, drawn.length)];
    const token = now === undefined ? undefined : shown.text.tokens[now];
    if (before === null || !token) {
      return now ?? null;
    }
    if (down === 0) {
      return drawn[hold(near + across, drawn.length)] ?? null;
    }
    // Up and down: the same position in the sequence before or after.
    const others = drawn.filter(at => shown.text.tokens[at]?.position === token.position);
    return others[hold(others.indexOf(now ?? 0) + Math.sign(down), others.length)] ?? null;
  }

  private _neighbours(shown: IProjected, at: number): { words: string; similarity: number }[] {
    const { features } = shown.plane;
    const row = firstIndex(features.kept.length, place => (features.kept[place] ?? 0) >= at);
    if (features.kept[row] !== at) {
      return [];
    }
    const similarity = shown.similarity();
    return similarity
      .nearest(similarity.vectorOf(row), NEIGHBOURS, each => each === row)
      .flatMap(like => {
        const token = shown.text.tokens[features.kept[like.row] ?? -1];
        return token ? [{ words: tokenWords(token, this.t), similarity: like.similarity }] : [];
      });
  }

  private _nearest(x: number, y: number): { at: number; apart: number } | null {
    const shown = this._shown;
    let best: { at: number; apart: number } | null = null;
    for (const at of shown ? drawnOf(shown) : []) {
      const place = pointOf(shown as IProjected, at);
      const apart = Math.hypot(place.x - x, place.y - y);
      if (best === null || apart < best.apart) {
        best = { at, apart };
      }
    }
    return best;
  }

  private _at({ x, y }: IMark): number | null {
    const near = y && this._nearest((x[0] + x[1]) / 2, (y[0] + y[1]) / 2);
    return near && near.apart <= (x[1] - x[0]) / 2 ? near.at : null;
  }

  private _markOf(at: number): IMark {
    const { x, y } = pointOf(this._shown as IProjected, at);
    const half = HALF * this._unit(this.env.frame?.width ?? USUAL);
    return { facet: null, x: [x - half, x + half], y: [y - half, y + half] };
  }

  /** Units of a pixel. */
  private _unit(width: number): number {
    const { x0 = 0, x1 = 1 } = this.env.zoom?.domain ?? {};
    return (x1 - x0) / Math.max(1, width);
  }

  private _shown: IProjected | null = null;
  private _cursor: number | null = null;
  /** Tokens of a loop that was too large. */
  private _refused = 0;
}
