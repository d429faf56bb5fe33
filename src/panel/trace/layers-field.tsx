import type { TranslationBundle } from '@jupyterlab/translation';
import * as React from 'react';
import type { IFault } from '../shell/apply-state';
import { layerSpan } from '../summary/layers';
import { Field } from './schema-form';

/** Which layers, as text: `all`, or ranges. */
export function LayersField(props: {
  id: string;
  value: string;
  /** Those that there are. */
  layers: readonly number[];
  fault: IFault | undefined;
  change: (layers: string) => void;
  trans: TranslationBundle;
}): React.ReactElement {
  const { id, value, layers, fault, change, trans } = props;
  return (
    <Field
      id={`${id}-layers`}
      label={trans.__('Layers')}
      help={trans.__('“all”, or ranges such as 0-3,7. This model has %1 here.', layerSpan(layers))}
      fault={fault}
    >
      {shared => (
        <input
          {...shared}
          type="text"
          className="jp-mod-styled"
          spellCheck={false}
          value={value}
          onChange={event => change(event.target.value)}
        />
      )}
    </Field>
  );
}
