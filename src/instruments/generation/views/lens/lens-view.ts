import { formatInteger } from '../../../../charts';
import type { GenerateRequest } from '../../../../protocol/messages.generated';
import type { LensOptions } from '../../../../protocol/views.generated';
import type { IPointed } from '../../../../store/run-link';
import type { IMark, INote, Loaded } from '../../../../views/shared/content';
import { type Control, selectControl } from '../../../../views/shared/control';
import { positionChip } from '../../../../views/shared/controls';
import { rangesField } from '../../../../views/shared/table';
import { chosenLayers } from '../../../../views/shared/layers';
import type { ILinkedMarks } from '../../../../views/shared/links';
import type { IPictured } from '../../../../views/shared/view-model';
import { columnOf, positionShown } from '../../../../views/shared/pinned-step';
import type { IState } from '../../../../views/shared/states';
import { emptyState, nothingYet, snippetState } from '../../../../views/shared/states';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { isUnderWay, type IGeneration, readTokens } from '../../store/generations';
import { readLens, type ILensCell, type Lens } from '../../store/effects';
import { GenerationView } from '../shared/generation-view';
import { firstDrawn, tokenWindow, windowWords } from '../shared/token-axis';
import type { LensColor, ILensFacts } from './lens-map';
import {
  leadsOf,
  colorWords,
  LEAST_CELL,
  LEAST_OUTLINED,
  LensMap,
  lensCaption,
  lensSummary,
  lensTitle
} from './lens-map';

/** Candidates that are read of each layer. */
const CANDIDATES = 5;
/** What reads a text with the lens. */
const SNIPPET = `lab.generate("…", lens=${CANDIDATES})`;

const COLORS: readonly LensColor[] = ['probability', 'final', 'rank', 'entropy'];

/** What each layer would predict at each position of a text: layer × position, the deepest layer on top. */
class LensView extends GenerationView<Required<LensOptions>> {
  protected override readonly streams = ['generations', 'lens', 'tokens'];

  override readonly zooms = { axes: 'xy', least: 2 } as const;

  override get followsPosition(): boolean {
    return true;
  }

  readonly subject = this.t('Logit lens');

  protected override has({ request }: IGeneration): boolean {
    return (request?.lens ?? 0) > 0;
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { env, options, source, t } = this;
    const { all, asked } = await this.readGenerations();
    this._shown = undefined;
    const lens = asked && (await readLens(source, asked.generation, options.sequence, signal));
    if (!asked || !lens || lens.layers.length === 0) {
      return { state: this._nothing(asked, all.at(-1)) };
    }
    const layers = chosenLayers(options.layers, lens.layers);
    if (layers.length === 0) {
      return {
        state: emptyState(
          t('Layers %1 were not read with the logit lens.', options.layers),
          t('Show all layers'),
          () => this.choose({ layers: 'all' })
        )
      };
    }
    const { sequence } = options;
    const text = { generation: asked.generation, sequence };
    const tokens = await readTokens(source, asked.generation, sequence, signal);
    const texts = new Map(tokens.map(({ position, piece }) => [position, piece]));
    const leads = leadsOf(lens);
    const first = firstDrawn(lens.positions, layers.length);
    const chosen = positionShown(env, options.position, text);
    const axis = tokenWindow(first, lens.positions.at(-1) ?? first, chosen, env);
    const facts: ILensFacts = { generation: asked, sequence, lens, layers, leads };
    this._shown = facts;
    this._chosen = chosen;
    const picture = this._map.draw({ lens, layers, leads, color: options.color, texts, axis });
    const looked = this._lookedAt(lens);
    return {
      content: {
        ...picture,
        ...(axis.home ? { home: axis.home } : {}),
        title: lensTitle(facts, t),
        caption: [
          ...windowWords(axis, env, t),
          ...(axis.pixels < LEAST_OUTLINED
            ? [t('Cells this narrow have no text and no outline: zoom in to see them.')]
            : axis.pixels < LEAST_CELL
              ? [t('Cells this narrow have no text: zoom in to read it.')]
              : []),
          ...lensCaption(facts, axis.pixels >= LEAST_OUTLINED, t)
        ],
        summary: lensSummary(facts, looked, looked && this._map.finalOf(looked), t),
        notes: this._newerNote(all, asked)
      }
    };
  }

  override controls(): Control[] {
    const { options, t } = this;
    const colors = COLORS.map(value => ({ value, text: colorWords(value, t) }));
    return [
      ...this.textControls(this._shown?.generation),
      rangesField('layers', t('Layers'), options.layers, this._shown?.lens.layers ?? [], layers =>
        this.choose({ layers })
      ),
      selectControl('color', t('Colour by'), options.color, colors, color => this.choose({ color })),
      ...positionChip(options.position, change => this.choose(change), t)
    ];
  }

  protected override get drawn(): IPictured {
    return this._map;
  }

  override pointedBy(mark: IMark): IPointed {
    const cell = this._map.readAt(mark);
    return { step: null, layer: cell?.layer ?? null, ...this._text, position: cell?.position ?? null };
  }

  override marksOf({ layer, position, generation, sequence }: IPointed): ILinkedMarks {
    const row = layer === null ? null : this._map.rowOf(layer);
    const { _text: text } = this;
    const isHere = generation === text.generation && sequence === text.sequence;
    return {
      marks: [...(isHere && typeof position === 'number' ? [columnOf(position)] : []), ...(row ? [row] : [])]
    };
  }

  override pinned(): IMark | null {
    return this._chosen !== null && this._shown?.lens.positions.includes(this._chosen)
      ? columnOf(this._chosen)
      : null;
  }

  /** The cell in which the final token of the position that is looked at first leads. */
  override insight(): IMark | null {
    const { _shown: shown } = this;
    const cell = shown && this._lookedAt(shown.lens);
    if (!shown || !cell) {
      return null;
    }
    const first = shown.leads.find(({ position }) => position === cell.position)?.layer ?? cell.layer;
    const layer = shown.layers.find(each => each >= first) ?? shown.layers.at(-1) ?? cell.layer;
    return this._map.showPlace({ position: cell.position, layer });
  }

  /** What the deepest layer predicts at the chosen position, else at the last one that a token follows. */
  private _lookedAt(lens: Lens): ILensCell | null {
    const deepest = lens.layers.at(-1) ?? 0;
    const known = this._shown?.leads.at(-1)?.position;
    return lens.at(deepest, this._chosen ?? known ?? lens.positions.at(-1) ?? 0);
  }

  /**
   * Why there is no lens to draw: of the generation that was asked for, or of any.
   * @param newest - Read with the lens or not.
   */
  private _nothing(asked: IGeneration | undefined, newest: IGeneration | undefined): IState {
    const { actions, options, source, t } = this;
    const refused = source.hello?.generation?.no_lens;
    if (refused !== undefined) {
      return nothingYet(t('This model has no logit lens: %1', refused), actions, t);
    }
    if (asked && (asked.request?.lens ?? 0) > 0) {
      const number = formatInteger(asked.generation);
      const sentence = isUnderWay(asked)
        ? t('Nothing of generation %1 has been read yet.', number)
        : asked.state === 'finished'
          ? t(
              'Nothing is here of what the logit lens read of generation %1, sequence %2.',
              number,
              options.sequence
            )
          : t('Generation %1 ended before anything was read. %2', number, asked.message).trim();
      return options.sequence > 0
        ? emptyState(sentence, t('Show sequence 0'), () => this.choose({ sequence: 0 }))
        : nothingYet(sentence, actions, t);
    }
    const show = { label: t('Show the newest'), run: () => this.choose({ generation: null, sequence: 0 }) };
    const sentence =
      options.generation === null
        ? t('No text was read with the logit lens. In a cell:')
        : asked
          ? t(
              'Generation %1 was written without the logit lens. In a cell:',
              formatInteger(options.generation)
            )
          : t('There is no generation %1. In a cell:', formatInteger(options.generation));
    return snippetState(sentence, SNIPPET, actions, t, [
      ...this._anew((asked ?? newest)?.request),
      ...(options.generation === null ? [] : [show])
    ]);
  }

  /** Have the same text written again, with the lens; nothing where nobody can be asked. */
  private _anew(request: GenerateRequest | null | undefined): IState['action'][] {
    const { source, t } = this;
    if (!request || !source.generate) {
      return [];
    }
    const run = async (): Promise<void> => {
      await source.generate?.({ ...request, lens: CANDIDATES });
      this.choose({ generation: null, sequence: 0 });
    };
    return [{ label: t('Write it again with the lens'), run }];
  }

  /** That there is a newer text, which was not read with the lens. */
  private _newerNote(all: readonly IGeneration[], shown: IGeneration): INote[] {
    const newer = all.filter(
      ({ generation, control }) => generation > shown.generation && control !== shown.generation
    );
    const { t } = this;
    return newer.length === 0 || this.options.generation !== null
      ? []
      : [
          {
            text: t(
              'Generation %1, which is newer, was written without the logit lens: %2 reads with it.',
              formatInteger(newer.at(-1)?.generation ?? NaN),
              SNIPPET
            ),
            action: {
              label: t('Copy this line'),
              run: () => void this.actions.copy(SNIPPET)
            }
          }
        ];
  }

  private get _text(): { generation: number | null; sequence: number } {
    return { generation: this._shown?.generation.generation ?? null, sequence: this.options.sequence };
  }

  private readonly _map = new LensMap(this.t, this.env);
  private _shown: ILensFacts | undefined;
  /** Position that is looked at; null follows the newest. */
  private _chosen: number | null = null;
}

export const view: IViewDefinition<LensOptions> = { create: (source, env) => new LensView(source, env) };
