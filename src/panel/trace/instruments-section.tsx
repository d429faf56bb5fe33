import type { TranslationBundle } from '@jupyterlab/translation';
import { titleWords } from '../../views/shared/describe';
import * as React from 'react';
import type { InstrumentInfo } from '../../protocol/messages.generated';
import { own } from '../../protocol/records';
import { faultsIn, isUnderWay } from './draft';
import type { PanelModel } from '../shell/panel-model';
import { Section, PanelButton } from '../shell/section';
import type { ControlModel } from '../summary/control-model';
import { applyText } from './apply-bar';
import { SchemaForm } from './schema-form';
import { translateBy } from '../../views/shared/translate';

type Json = Readonly<Record<string, unknown>>;

/** A group of numbers and switches among the settings of an instrument. */
interface IGroup {
  readonly name: string;
  readonly title: string;
  readonly description: string;
  readonly schema: Record<string, unknown>;
}

const SCALARS: ReadonlySet<unknown> = new Set(['boolean', 'integer', 'number', 'string']);
const objectOf = (value: unknown): Json =>
  typeof value === 'object' && value !== null ? (value as Json) : {};

/** The groups of a schema that a form can show: flat objects of scalars. Deeper nesting has its own view. */
export function groupsOf({ schema }: Pick<InstrumentInfo, 'schema'>): IGroup[] {
  return Object.entries(objectOf(schema['properties'])).flatMap(([name, value]) => {
    const group = objectOf(value);
    const properties = Object.values(objectOf(group['properties']));
    return properties.length > 0 && properties.every(each => SCALARS.has(objectOf(each)['type']))
      ? [
          {
            name,
            title: String(group['title'] ?? name),
            description: String(group['description'] ?? ''),
            schema: { ...group }
          }
        ]
      : [];
  });
}

/** Settings of instruments beside the trace: a folded form for each that announces a flat schema. */
export function InstrumentsSection({ model }: { model: PanelModel }): React.ReactElement | null {
  const { open, trans } = model;
  const { configurable = {} } = open?.source.hello ?? {};
  if (open === null || !open.control.writable) {
    return null;
  }
  return (
    <>
      {Object.entries(configurable).map(([name, info]) =>
        groupsOf(info).map(group => (
          <InstrumentForm
            key={`${name}.${group.name}`}
            name={name}
            title={info.title}
            group={group}
            control={open.control}
            trans={trans}
          />
        ))
      )}
    </>
  );
}

function InstrumentForm(props: {
  name: string;
  title: string;
  group: IGroup;
  control: ControlModel;
  trans: TranslationBundle;
}): React.ReactElement {
  const { name, title, group, control, trans } = props;
  const t = translateBy(trans);
  const [edits, setEdits] = React.useState<Json>({});
  const inForce = objectOf(own(objectOf(own(control.config.instruments ?? {}, name)), group.name));
  const asked = control.asked('instruments');
  const faults = faultsIn(asked, `instruments.${name}.${group.name}`);
  const changed = Object.entries(edits).filter(([each, value]) => own(inForce, each) !== value);
  const idle = changed.length === 0 || isUnderWay(asked);
  const apply = async (): Promise<void> => {
    const patch = { [name]: { [group.name]: Object.fromEntries(changed) } };
    await control.ask('instruments', { instruments: patch });
    if (control.asked('instruments').kind === 'applied') {
      setEdits({});
    }
  };
  return (
    <Section name={`instrument-${name}`} title={titleWords(title, t)} folded>
      <p className="jp-MegalensHint" title={group.description}>
        {titleWords(group.title, t)}. {titleWords(group.description, t)}
      </p>
      <SchemaForm
        id={`jp-Megalens-${name}-${group.name}`}
        schema={group.schema}
        values={{ ...inForce, ...edits }}
        faults={each => faults.get(each)}
        disabled={false}
        change={(each, value) => {
          control.settle('instruments');
          setEdits(before => ({ ...before, [each]: value }));
        }}
        t={t}
      />
      <p className={`jp-MegalensControls-state jp-mod-${asked.kind}`} role="status">
        {asked.kind !== 'refused' ? applyText(asked, trans) : faults.size > 0 ? '' : asked.message}
      </p>
      <div className="jp-MegalensApply">
        <span className="jp-MegalensApply-size" />
        <PanelButton idle={idle} act={() => setEdits({})}>
          {trans.__('Revert')}
        </PanelButton>
        <PanelButton className="jp-MegalensButton jp-mod-accept" idle={idle} act={() => void apply()}>
          {trans.__('Apply')}
        </PanelButton>
      </div>
    </Section>
  );
}
