import type { TokensOptions, ViewOptions } from '../../../../protocol/views.generated';
import type { IRunSource } from '../../../../store/source';
import type { Control } from '../../../../views/shared/control';
import type {
  IComposition,
  ICompositionEnvironment,
  IViewPart,
  IViewDefinition
} from '../../../../views/shared/definition';
import { CandidatesPane } from './candidates-pane';
import { generateControls } from './generate-controls';
import { GenerateForm } from './generate-form';
import { TextReader } from './text-facts';
import { TextPane, type Which } from './text-pane';

/**
 * What a model writes: a form that asks it to, the text token by token, what the token that is looked at could have been, and perhaps another text beside it.
 */
class TokensView implements IComposition {
  constructor(
    private readonly _source: IRunSource,
    private readonly _env: ICompositionEnvironment<TokensOptions>
  ) {
    this._reader = new TextReader(_source, _env.runs, () => _env.refresh());
    this._form = new GenerateForm(
      _source,
      () => this._showNewest(),
      () => _env.rearrange()
    );
  }

  readonly className = 'jp-MegalensMoments jp-MegalensTokens';
  readonly zoomed = null;
  readonly unpictured = '';

  async prepare(): Promise<void> {
    // What cannot be read is said by the parts.
    const facts = await this._reader.facts(this._env.options).catch(() => null);
    this._hasOther = (facts?.other ?? null) !== null;
  }

  layout(): readonly IViewPart[] {
    const half = this._hasOther ? ' jp-mod-half' : '';
    const className = `jp-MegalensMoments-pane${half}`;
    const options = this._env.options as Required<ViewOptions>;
    const text = (which: Which): IViewPart => ({
      key: `${which}${half}`,
      className,
      options,
      create: (source, env) => {
        this._copy = said => void env.actions.copy(said);
        return new TextPane(source, env, this._reader, which, this._end);
      }
    });
    const candidates = (which: Which): IViewPart => ({
      key: `${which} candidates${half}`,
      className: `${className} jp-MegalensTokens-candidates`,
      options,
      create: (source, env) => new CandidatesPane(source, env, this._reader, which)
    });
    return this._hasOther
      ? [text('text'), text('other'), candidates('text'), candidates('other')]
      : [text('text'), candidates('text')];
  }

  shows(key: string, isDrawn: (key: string) => boolean): boolean {
    return key.startsWith('text') && !key.includes('candidates') ? true : isDrawn(key);
  }

  heard(_key: string, options: Partial<ViewOptions>): Partial<TokensOptions> {
    return options as Partial<TokensOptions>;
  }

  drawn(key: string, isDrawn: boolean): void {
    const half = this._hasOther ? ' jp-mod-half' : '';
    this._drawn.set(key, isDrawn);
    // What is hidden is not drawn by itself, and candidates come after the pane for them.
    const isLate =
      this._drawn.get(`text${half}`) === true && this._drawn.get(`text candidates${half}`) === false;
    if (isLate && !this._isLate) {
      this._env.refresh(true);
    }
    this._isLate = isLate;
    if (this._hasOther !== ((this._reader.last?.other ?? null) !== null)) {
      this._env.relayout();
    }
  }

  controls(of: (key: string) => readonly Control[]): {
    main: readonly Control[];
    folded?: { label: string; controls: readonly Control[] | null };
  } {
    const { t } = this._env;
    const [name, ...rest] = of(this._hasOther ? 'text jp-mod-half' : 'text');
    const isOffered = this._form.isOffered;
    const generations = this._reader.last?.generations ?? [];
    const toggle: Control = {
      kind: 'toggle',
      id: 'generate',
      text: t('Prompts'),
      title: t('Ask the model to write'),
      pressed: this._isOpen,
      change: isOpen => {
        this._isOpen = isOpen;
        this._env.rearrange();
      }
    };
    return {
      main: [...(name ? [name] : []), ...(isOffered ? [toggle] : []), ...rest],
      folded: {
        label: t('Generate'),
        controls: isOffered && this._isOpen ? generateControls(this._form, generations, this._copy, t) : null
      }
    };
  }

  dispose(): void {
    this._reader.dispose();
  }

  /** By key, whether a part had something to show when it was drawn last. */
  private readonly _drawn = new Map<string, boolean>();
  private _isLate = false;
  /** Parts are given what copies a text. */
  private _copy: (text: string) => void = () => undefined;

  private readonly _end = (generation: number): void =>
    void this._form.end(this._reader.last?.generations ?? [], generation);

  private _showNewest(): void {
    this._source.link?.pinPosition(null);
    this._env.choose({ generation: null, sequence: 0, position: null });
  }

  private readonly _reader: TextReader;
  private readonly _form: GenerateForm;
  private _hasOther = false;
  private _isOpen = true;
}

export const view: IViewDefinition<TokensOptions> = {
  compose: (source, env) => new TokensView(source, env)
};
