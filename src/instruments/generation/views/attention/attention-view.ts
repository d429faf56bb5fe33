import { formatInteger } from '../../../../charts';
import { inRanges, isRangeText } from '../../../../protocol/ranges';
import { own } from '../../../../protocol/records';
import type { AttentionOptions } from '../../../../protocol/views.generated';
import type { IRunSource, SourceChange } from '../../../../store/source';
import type { IMark, INote, Loaded } from '../../../../views/shared/content';
import { type Control, selectControl } from '../../../../views/shared/control';
import type { IViewDefinition } from '../../../../views/shared/definition';
import { compressorWords } from '../../../../views/shared/describe';
import { chosenLayers, layerName, layerWords } from '../../../../views/shared/layers';
import { positionShown, StepShown } from '../../../../views/shared/pinned-step';
import type { IState } from '../../../../views/shared/states';
import {
  retryAction,
  emptyFlag,
  emptyState,
  nothingYet,
  snippetState
} from '../../../../views/shared/states';
import { ViewModel, type IViewEnvironment } from '../../../../views/shared/view-model';
import { isUnderWay, type IGeneration } from '../../store/generations';
import { ATTENTION, type IAttentionFound, AttentionReader } from './attention-reader';
import type { IAttentionText, IAttentionPicture } from './attention-text';
import { HeadsPicture } from './heads-picture';
import { MapsPicture } from './maps-picture';
import { goControl, positionChip, stepsControl } from '../../../../views/shared/controls';
import { chip, numberField, rangesField } from '../../../../views/shared/table';
import { generationControls } from '../shared/generation-view';

/** What writes a text with its attention. */
const SNIPPET = 'lab.generate("…", attention=True)';

type Options = Required<AttentionOptions>;

/** Which tokens each head looks at: query × key for each layer and head, or what distinguishes the heads. */
class AttentionView extends ViewModel<AttentionOptions> {
  constructor(source: IRunSource, env: IViewEnvironment<AttentionOptions>) {
    super(source, env);
    this._reader = new AttentionReader(source);
    const open = (layer: number, head: number): void => {
      const { kind, layers, heads } = this.options;
      this._back = { kind, layers, heads };
      this.choose({ kind: 'maps', layers: String(layer), heads: String(head) });
    };
    this._maps = new MapsPicture(env, open, position => this._look(position));
    this._heads = new HeadsPicture(env, open);
  }

  override readonly zooms = { axes: 'xy', least: 4 } as const;

  override get followsPosition(): boolean {
    return this._found?.text?.generation !== null && this.options.kind === 'maps';
  }

  readonly subject = this.t('Attention');

  concerns(change: SourceChange): boolean {
    return this._reader.concerns(change);
  }

  async load(signal: AbortSignal): Promise<Loaded> {
    const { options } = this;
    const near = this._steps.of(options.step);
    const found = await this._reader.read({ ...options, near }, signal);
    this._found = found;
    const { text } = found;
    if (text === null) {
      return { state: await this._nothing(found) };
    }
    if (text.rest) {
      this.env.follow(text.rest());
    }
    const layers = chosenLayers(options.layers, text.read.layers);
    const heads = inRanges(
      options.heads,
      Array.from({ length: text.heads }, (_, head) => head)
    );
    if (layers.length === 0) {
      return { state: await this._nothing(found) };
    }
    if (heads.length === 0) {
      return { state: this._noHead(text.heads) };
    }
    const chosen = this._chosen(text);
    const position = chosen ?? text.read.passes[text.read.passes.length - 1]?.positions[1] ?? null;
    const isChosen = chosen !== null;
    const content = this.drawn.draw({ text, layers, heads, position, isChosen, step: near });
    return { content: { ...content, notes: this._newer(found) } };
  }

  override controls(): Control[] {
    const { options, source, t, _found: found } = this;
    const isWritten = found?.generation !== undefined;
    const kinds = { maps: t('maps'), heads: t('overview of heads') };
    const known = Array.from({ length: found?.text?.heads ?? 0 }, (_, head) => head);
    return [
      { kind: 'name', id: 'run', text: source.name },
      ...(isWritten || options.step === null
        ? generationControls(
            found?.offered ?? [],
            found?.generation,
            options,
            change => this._pick({ ...change, step: null, position: null }),
            t
          )
        : []),
      selectControl('kind', t('Draw'), options.kind, kinds, kind =>
        this._pick(
          kind === 'heads'
            ? { kind, layers: 'all', heads: 'all', color_range: null }
            : { kind, color_range: null }
        )
      ),
      this._ranges('layers', t('Layers'), found?.layers ?? []),
      this._ranges('heads', t('Heads'), known),
      ...this._aloneChip(),
      ...(isWritten ? [] : this._trainingControls()),
      ...this.drawn.controls(),
      ...positionChip(options.position, change => this._pick(change), t)
    ];
  }

  private _ranges(id: 'heads' | 'layers', label: string, known: readonly number[]): Control {
    return rangesField(
      id,
      label,
      this.options[id],
      known,
      text => this._pick({ [id]: text }),
      text => isRangeText(text) && !text.includes('-1')
    );
  }

  /** That one head is drawn in full, and what to draw again after it. */
  private _aloneChip(): Control[] {
    const { options, t } = this;
    const { kind, layers, heads } = options;
    const isAlone = kind === 'maps' && /^\d+$/.test(layers) && /^\d+$/.test(heads);
    const back = this._back ?? { kind: 'maps', layers, heads: 'all' };
    return isAlone
      ? [
          chip('head', t('Layer %1, head %2', layers, heads), t('Draw all that was drawn before'), () =>
            this._pick(back)
          )
        ]
      : [];
  }

  /** The controls of a training's attention: its step and its sample. */
  private _trainingControls(): Control[] {
    const { options, source, t, _found: found } = this;
    const samples = found?.text?.sequences ?? 1;
    const toStep = (step: number | null): void => this._pick({ step });
    const hasTexts = (found?.offered.length ?? 0) > 0;
    return [
      ...(samples < 2
        ? []
        : [
            numberField('sequence', t('Sample'), options.sequence, [0, samples - 1], sequence =>
              this._pick({ sequence })
            )
          ]),
      stepsControl(found?.steps ?? [], this._steps.of(options.step), source.connection, toStep, t),
      goControl(toStep, t),
      ...(hasTexts
        ? [
            chip('training', t('Of the training'), t('Show what was generated'), () =>
              this._pick({ step: null, position: null })
            )
          ]
        : [])
    ];
  }

  /** Choose by the toolbar: the step that is pinned is left. */
  private _pick(change: Partial<AttentionOptions>): void {
    this._steps.leave();
    this.choose(change);
  }

  override clicked(mark: IMark): void {
    this.drawn.clicked(mark);
  }

  override insight(): IMark | null {
    return this.drawn.insight();
  }

  override pinned(): IMark | null {
    return this.drawn.pinned?.() ?? null;
  }

  override bandOf(mark: IMark): readonly IMark[] {
    return this.drawn.bandOf?.(mark) ?? [];
  }

  override zoomed(): void {
    this.env.refresh(false);
  }

  /** The position that is looked at; null follows the newest. */
  private _chosen({ generation, sequence }: IAttentionText): number | null {
    const { position } = this.options;
    return generation === null ? position : positionShown(this.env, position, { generation, sequence });
  }

  /** Look at a position of a training's sample, which no other view knows of; again: at the newest. */
  private _look(position: number): void {
    this.choose({ position: position === this.options.position ? null : position });
  }

  /** That there is a newer text without attention. */
  private _newer({ offered, generation }: IAttentionFound): INote[] {
    const newest = offered[offered.length - 1];
    const { t, actions } = this;
    const isOld =
      generation &&
      newest &&
      generation.control !== newest.generation &&
      generation.generation < newest.generation;
    return isOld && this.options.generation === null
      ? [
          {
            text: t(
              'Generation %1, which is newer, was written without attention.',
              formatInteger(newest.generation)
            ),
            action: {
              label: t('Copy the line that writes with it'),
              run: () => void actions.copy('lab.generate("…", attention=True)')
            }
          }
        ]
      : [];
  }

  /** Why there is no attention to draw. */
  private async _nothing(found: IAttentionFound): Promise<IState> {
    const { actions, options, source, t } = this;
    const { hello } = source;
    const refused = hello?.generation?.no_attention;
    if (refused !== undefined) {
      return nothingYet(t('This model gives no attention probabilities: %1', refused), actions, t);
    }
    const { generation, layers, mixed, offered } = found;
    if (mixed !== null) {
      return this._noKeys(mixed);
    }
    if (
      generation === undefined &&
      offered.length === 0 &&
      (hello === null || hello.generation === undefined)
    ) {
      return emptyFlag(source, ATTENTION, hello?.phase ?? 'train', actions, t);
    }
    if (layers.length > 0 && chosenLayers(options.layers, layers).length === 0) {
      return this._noLayer(layers);
    }
    if (options.step !== null) {
      const back = { label: t('Show what was generated'), run: () => this.choose({ step: null }) };
      return {
        kind: 'empty',
        sentence: t('No attention was traced of this training.'),
        action: back,
        more: [retryAction(actions, t)]
      };
    }
    if (generation === undefined) {
      const sentence =
        options.generation === null
          ? t('No attention was traced. In a cell:')
          : t('There is no generation %1. In a cell:', formatInteger(options.generation));
      return snippetState(sentence, SNIPPET, actions, t);
    }
    const number = formatInteger(generation.generation);
    if (generation.request?.attention === true) {
      const sentence = isUnderWay(generation)
        ? t('No attention of generation %1 has arrived yet.', number)
        : t('No attention of generation %1 is here. %2', number, generation.message).trim();
      return nothingYet(sentence, actions, t);
    }
    const sentence = t('No attention was traced in generation %1. In a cell:', number);
    return snippetState(sentence, SNIPPET, actions, t, this._rewriting(generation));
  }

  /** That keys were mixed, and what keeps them apart. */
  private _noKeys(mixed: string): IState {
    const { actions, source, t } = this;
    const { hello, connection } = source;
    const sentence = t(
      'Attention was kept as %1, which mixes keys: no compression keeps all of them apart, Peaks the largest of blocks.',
      compressorWords(mixed, t)
    );
    const setting = own(hello?.config.flags, ATTENTION);
    const isOffered = hello?.compressors.some(({ name }) => name === 'Peaks') === true;
    if (connection.kind !== 'live' || !setting || !isOffered) {
      return nothingYet(sentence, actions, t);
    }
    const change = async (): Promise<void> => {
      await source.configure({ flags: { [ATTENTION]: { ...setting, compressor: { name: 'Peaks' } } } });
    };
    return {
      kind: 'empty',
      sentence,
      action: { label: t('Keep the largest of blocks'), run: change },
      more: [retryAction(actions, t)]
    };
  }

  /** Why a choice of layers leaves nothing to draw. */
  private _noLayer(layers: readonly number[]): IState {
    const { options, t } = this;
    const [first = 0] = layers;
    return emptyState(
      t('There is no attention of layers %1 here, but of %2.', options.layers, layerWords(layers, t)),
      t('Show %1', layerName(first, t)),
      () => this.choose({ layers: String(first) })
    );
  }

  /** Why a choice of heads leaves nothing to draw. */
  private _noHead(heads: number): IState {
    const { options, t } = this;
    return emptyState(
      t('There are no heads %1: a layer has %2, counted from 0.', options.heads, formatInteger(heads)),
      t('Show all heads'),
      () => this.choose({ heads: 'all' })
    );
  }

  /** Have the same text written with its attention; nothing where nobody can be asked. */
  private _rewriting({ request }: IGeneration): IState['action'][] {
    const { source, t } = this;
    if (!source.generate || !request) {
      return [];
    }
    const run = async (): Promise<void> => {
      const { generation } = (await source.generate?.({ ...request, attention: true })) ?? {};
      this.choose({ generation: generation ?? null });
    };
    return [{ label: t('Write it again with attention'), run }];
  }

  protected override get drawn(): IAttentionPicture {
    return this.options.kind === 'maps' ? this._maps : this._heads;
  }

  private readonly _reader: AttentionReader;
  private readonly _maps: MapsPicture;
  private readonly _heads: HeadsPicture;
  private readonly _steps = new StepShown(this.env);
  private _found: IAttentionFound | null = null;
  /** What was drawn before one head was opened. */
  private _back: Pick<Options, 'heads' | 'kind' | 'layers'> | null = null;
}

export const view: IViewDefinition<AttentionOptions> = {
  create: (source, env) => new AttentionView(source, env)
};
