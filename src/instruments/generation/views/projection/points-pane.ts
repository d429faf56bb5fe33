import type { UmapRun } from '../../projection/projector';
import { flagColor, formatInteger, formatNumber } from '../../../../charts';
import { firstIndex } from '../../../../protocol/records';
import type { IPointed, ITextPosition } from '../../../../store/run-link';
import type { IMark, IMoved, INote, Loaded } from '../../../../views/shared/content';
import { type Control, selectControl } from '../../../../views/shared/control';
import type { ILinkedMarks } from '../../../../views/shared/links';
import { tokenText } from '../../../../views/shared/describe';
import { PointsPicture } from '../../../../views/kits/points/points-picture';
import { layerName } from '../../../../views/shared/layers';
import { hold, nearestIndex } from '../../../../views/shared/scale';
import { chip, type ITip, numberField } from '../../../../views/shared/table';
import { flagControls } from '../../../../views/shared/tensor-controls';
import {
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
import type { IVectorToken } from './text-vectors';
import { pointColors, promptName, TokenGroup } from './token-group';

/** Neighbours that a tip names. */
const NEIGHBOURS = 4;

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
    const { chosen: options, source, t } = this;
    return [
      { kind: 'name', id: 'run', text: source.name },
      ...this._tensorControls(),
      selectControl(
        'method',
        t('Method'),
        options.method,
        { pca: t('components (PCA)'), umap: t('UMAP') },
        method => this.pick({ method })
      ),
      selectControl(
        'color',
        t('Colour by'),
        options.color,
        { prompt: t('prompt'), token: t('token'), position: t('position'), step: t('step') },
        color => this.pick({ color })
      ),
      selectControl(
        'standardise',
        t('Features'),
        String(options.standardise),
        { false: t('as they are'), true: t('standardised') },
        value => this.pick({ standardise: value === 'true' })
      ),
      selectControl(
        'keep_axes',
        t('Axes'),
        String(options.keep_axes),
        { true: t('kept between layers'), false: t('of each layer') },
        value => this.pick({ keep_axes: value === 'true' })
      ),
      {
        kind: 'text',
        id: 'generations',
        label: t('Generations'),
        value: options.generations,
        suggestions: ['newest'],
        valid: text => /^(newest|\d{1,9}(-\d{1,9})?(,\d{1,9}(-\d{1,9})?)*)$/.test(text) && text.length <= 500,
        change: generations => this.pick({ generations })
      },
      ...this._methodControls(),
      ...this._groupChip()
    ];
  }

  private _tensorControls(): Control[] {
    const { reader, source, t } = this;
    const { flag, layer, part } = this.chosen;
    const flags = (source.hello?.flags ?? []).filter(
      ({ axes, name }) => name === flag || (axes[0] === 'position' && axes.length > 1)
    );
    const { layers } = reader.shape;
    return [
      ...flagControls(flags, { flag, part }, reader.shape, change => this.pick(change), t),
      ...(layers.length < 2
        ? []
        : [
            {
              kind: 'steps',
              id: 'layer',
              label: t('Layer'),
              followLabel: '',
              count: layers.length,
              index: Math.max(0, nearestIndex(layers, layer)),
              text: layerName(layer, t),
              following: false,
              canFollow: false,
              change: (index: number | null) => this.pick({ layer: layers[index ?? 0] ?? layer })
            } as const
          ])
    ];
  }

  private _methodControls(): Control[] {
    const { chosen: options, t } = this;
    const number = (
      name: 'across' | 'neighbors' | 'seed' | 'up',
      label: string,
      least: number,
      most: number
    ): Control =>
      numberField(name, label, options[name], [least, most], value => this.pick({ [name]: value }));
    return options.method === 'umap'
      ? [number('neighbors', t('Neighbours'), 2, 200), number('seed', t('Seed'), 0, 4_294_967_295)]
      : [number('across', t('Across: PC'), 1, 8), number('up', t('Up: PC'), 1, 8)];
  }

  private _groupChip(): Control[] {
    const { chosen: options, t, _shown: shown } = this;
    const grouped = shown ? this.groupOf(shown).size : 0;
    return options.group === ''
      ? []
      : [
          chip(
            'group',
            t('Group: %1', countWords(grouped, t)),
            t(
              'Chosen by a loop drawn with Shift, a box with Ctrl and Shift, or token by token with G. Let it go'
            ),
            () => this.pick({ group: '' })
          )
        ];
  }

  protected override get drawn(): PointsPicture {
    return this._picture;
  }

  override move(key: string): IMoved | null {
    // A token is put into the group, or out of it, where the cursor is.
    const moved = super.move(key === 'g' ? 'copy' : key);
    const [shown, { cursor }] = [this._shown, this._picture];
    const token = cursor === null ? undefined : shown?.text.tokens[cursor];
    if (moved === null || key !== 'g' || !shown || cursor === null || !token) {
      return moved;
    }
    const group = this.groupOf(shown).toggled(token);
    this._choose(group);
    const { t } = this;
    const said = t('%1. The group has %2.', this._where(shown, cursor), countWords(group.size, t));
    return { said, mark: moved.mark };
  }

  /** The tokens in a box, or in a loop, are looked at together. */
  override boxed(box: IMark | null): void {
    const shown = this._shown;
    if (shown && box?.y) {
      const inside = this._picture.inside(box);
      this._choose(new TokenGroup(inside.flatMap(at => shown.text.tokens[at] ?? [])));
    }
  }

  override insight(): IMark | null {
    const farthest = this._shown && this.chosen.method === 'pca' ? farthestOf(this._shown) : null;
    return farthest && this._picture.show(farthest.token);
  }

  override pointedBy(mark: IMark): IPointed {
    const at = this._picture.pointOf(mark);
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
          ? [this._picture.markOf(at)]
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
    const farthest = this.chosen.method === 'pca' ? farthestOf(projected) : null;
    const group = this.groupOf(projected);
    const { text, generations, coordinates } = projected;
    const token = (at: number): IVectorToken => text.tokens[at] as IVectorToken;
    const picture = this._picture.take(
      {
        coordinates,
        looksOf: dark => pointColors(text.tokens, generations, this.chosen.color, dark, t),
        titles: axisTitles(projected, this.chosen, t),
        isSquare: true,
        ...(group.size > 0 && { standsOut: at => group.has(token(at)) }),
        ringed: at => this._isMarked(token(at)),
        named: farthest ? [farthest.token] : [],
        nameOf: at => tokenText(token(at).piece),
        textOf: at => this._textOf(projected, at),
        tipOf: at => this._tipOf(projected, at),
        said: at => this._said(projected, at),
        next: (at, by) => this._next(projected, at, by)
      },
      this.env.isDark
    );
    return {
      content: {
        ...picture,
        notes: this._notes(projected),
        title: projectionTitle(projected, this.subject, this.chosen, t),
        caption: this._caption(projected),
        summary: projectionSummary(projected, this.chosen, t),
        swatch: flagColor(this.chosen.flag, this.source.hello?.flags.map(each => each.name) ?? [])
      }
    };
  }

  private _caption(projected: IProjected): string[] {
    const { size } = this.groupOf(projected);
    return [
      ...projectionCaption(projected, this.chosen, this.t),
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
      : this.chosen.position === position;
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

  private _tipOf(shown: IProjected, at: number): ITip | null {
    const token = shown.text.tokens[at];
    if (!token) {
      return null;
    }
    const { t } = this;
    const neighbours = this._neighbours(shown, at);
    const { x, y } = this._picture.placeOf(at);
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

  private _said(shown: IProjected, at: number): string {
    const [nearest] = this._neighbours(shown, at);
    const where = this._where(shown, at);
    return nearest ? this.t('%1. Most alike: %2', where, nearest.words) : where;
  }

  private _where(shown: IProjected, at: number): string {
    const { x, y } = this._picture.placeOf(at);
    const place = this.t('%1 across, %2 up', formatNumber(x, 3), formatNumber(-y, 3));
    return `${this._textOf(shown, at)}: ${place}`;
  }

  private _next({ text }: IProjected, at: number, [across, down]: readonly [number, number]): number {
    const { points } = this._picture;
    const { position } = text.tokens[at] ?? {};
    // Up and down: the same position in the sequence before or after.
    const row = down === 0 ? points : points.filter(each => text.tokens[each]?.position === position);
    return row[hold(row.indexOf(at) + (down === 0 ? across : Math.sign(down)), row.length)] ?? at;
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

  private _shown: IProjected | null = null;
  private readonly _picture = new PointsPicture(this.env);
  /** Tokens of a loop that was too large. */
  private _refused = 0;
}
