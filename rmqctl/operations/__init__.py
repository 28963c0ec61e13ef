"""Operations on stores. Brokers have no such operations."""
