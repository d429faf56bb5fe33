import * as React from 'react';

/** A name and its number. */
export function Term(props: {
  name: string;
  value: string;
  title?: string;
  warn?: boolean;
}): React.ReactElement {
  return (
    <span className={`jp-MegalensTerm${props.warn ? ' jp-mod-warn' : ''}`} title={props.title}>
      {props.name !== '' && <span className="jp-MegalensTerm-name">{props.name} </span>}
      <span className="jp-MegalensTerm-value">{props.value}</span>
    </span>
  );
}
